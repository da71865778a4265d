// VH_HOST_DEVICE marks a function that host loops and device kernels share; VH_UNROLL a loop that is written out there.
#pragma once

#if defined(__CUDACC__)
#define VH_HOST_DEVICE __host__ __device__
#else
#define VH_HOST_DEVICE
#endif

// VH_UNROLL: before a loop over constants that device code writes out, so that its array stays in registers.
#if defined(__CUDA_ARCH__)
#define VH_UNROLL _Pragma("unroll")
#else
#define VH_UNROLL
#endif
