// VH_VERSIONS: a function compiled for several instruction sets; the program takes the widest that the machine has.
#pragma once

// Only for functions whose loops the compiler turns into vectors. Not under the sanitizers: the choice is made while
// the program is loaded, before they are ready. Clang has no versions of templates.
#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#define VH_VERSIONS
#elif __GNUC__ >= 12
#define VH_VERSIONS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else  // GCC 11 knows these levels, but not how to choose by them
#define VH_VERSIONS __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
