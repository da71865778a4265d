// Whose processor it is, and what functions are compiled for: VH_VERSIONS, several instruction sets of the host, of
// which the program takes the widest that the machine has; VH_HOST_DEVICE, host loops and device kernels alike.
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

// VH_VERSIONS: only for functions whose loops the compiler turns into vectors. Not under the sanitizers: the choice is
// made while the program is loaded, before they are ready. Clang has no versions of templates.
#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#define VH_VERSIONS
#else
#define VH_VERSIONS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

// VH_AVX512_BF16: a function for processors with AVX512-BF16, to be called where has_avx512_bf16(); x86 only.
#if defined(__x86_64__)
#define VH_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#else
#define VH_AVX512_BF16
#endif

namespace vit_hybrid {

/// Whether this processor has AVX512-BF16; every one with AMX has.
inline bool has_avx512_bf16() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0;
  return has;
#else
  return false;
#endif
}

/// Whether it is AMD's, whose cores share their last cache in groups of a few.
inline bool is_amd_processor() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

}  // namespace vit_hybrid
