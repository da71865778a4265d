// The intrinsics of AVX-512, for files that choose at run time.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

// For the rest of the file: GCC 12 warns of registers that its own intrinsics leave without a value on purpose.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#endif
