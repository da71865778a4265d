// VH_HOST_DEVICE: marks a function that host loops and device kernels share.
#pragma once

#if defined(__CUDACC__)
#define VH_HOST_DEVICE __host__ __device__
#else
#define VH_HOST_DEVICE
#endif
