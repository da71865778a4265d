// VH_VERSIONS: a function compiled for several instruction sets; the program takes the widest that the machine has.
#pragma once

// Only for functions whose loops the compiler turns into vectors. Not under the sanitizers: the choice is made while
// the program is loaded, before they are ready.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define VH_VERSIONS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VH_VERSIONS
#endif
