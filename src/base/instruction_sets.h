// VH_VERSIONS: a function compiled for several instruction sets; the program takes the widest that the machine has. And
// what else is asked of a processor.
#pragma once

// Only for functions whose loops the compiler turns into vectors. Not under the sanitizers: the choice is made while
// the program is loaded, before they are ready. Clang has no versions of templates.
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

}  // namespace vit_hybrid
