// Instructions of a GPU for which CUDA C++ has no word: tiles of half types multiplied by the tensor cores of a warp,
// copies in the background, quick functions.
//
// The fragments of tiles are those of mma.m16n8k16 and ldmatrix (PTX ISA, "Matrix Fragments for mma.m16n8k16"). With
// lane = 4 g
// + t:
//   A  16 x 16   {A[g][2t..], A[g + 8][2t..], A[g][2t + 8..], A[g + 8][2t + 8..]}, two neighbours in a word
//   B  16 x 8    {B[2t..][g], B[2t + 8..][g]}
//   C  16 x 8    {C[g][2t], C[g][2t + 1], C[g + 8][2t], C[g + 8][2t + 1]} in fp32
// so that two C side by side, rounded, are the A of the next product. Tiles are for sm_80 and newer, the rest is for
// all.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "src/kernels/element_vector.h"

#if defined(__CUDACC__) || defined(VH_EMULATES_KERNELS)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define VH_HAS_SM80 1
#define VH_FROM_SM80(...) __VA_ARGS__
#else
#define VH_HAS_SM80 0
#define VH_FROM_SM80(...) __trap()  // a kernel that comes here is not started on older GPUs
#endif

namespace vit_hybrid::kernels {

inline constexpr int kTile = 16;  // rows of A, and the shared dimension
using TileWords = uint32_t[4];    // of A, or of two B side by side

#if defined(__CUDACC__)

/// The address of shared memory as instructions for tiles take it.
__device__ inline uint32_t shared_address(const void* data) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(data));
}

/// Four tiles 8 x 8 of shared memory: lanes 8 i to 8 i + 7 give the addresses of the rows of tile i, each of 16 bytes.
/// words[i] gets the elements [g][2t..] of tile i.
__device__ inline void load_tiles(TileWords& words, uint32_t row_address) {
  VH_FROM_SM80(asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                            : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                            : "r"(row_address)));
}
/// The same with [2t..][g] of each tile.
__device__ inline void load_tiles_transposed(TileWords& words, uint32_t row_address) {
  VH_FROM_SM80(asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                            : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                            : "r"(row_address)));
}

/// c += a b.
template <class T>
__device__ inline void multiply_add(float (&c)[4], const TileWords& a, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    VH_FROM_SM80(
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
  } else {
    VH_FROM_SM80(
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
  }
}

/// 16 bytes of global memory to shared memory, in the background until the thread waits for them.
__device__ inline void copy_to_shared(uint4* to, const void* from) {
#if VH_HAS_SM80
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
#else
  *to = *static_cast<const uint4*>(from);
#endif
}
/// Closes a group: of the copies that the thread has begun since the last one.
__device__ inline void end_group_of_copies() {
#if VH_HAS_SM80
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for all of the thread's groups but the last `kLast`.
template <int kLast>
__device__ inline void wait_for_copies_but() {
#if VH_HAS_SM80
  asm volatile("cp.async.wait_group %0;" ::"n"(kLast) : "memory");
#endif
}
/// Waits for all that the thread has begun.
__device__ inline void wait_for_copies() {
#if VH_HAS_SM80
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// Two numbers rounded to T, a half type, side by side.
template <class T>
__device__ inline uint32_t pair_of(float first, float second) {
  uint32_t word = 0;
#if VH_HAS_SM80
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  }
#else
  const T pair[2] = {T(first), T(second)};
  memcpy(&word, pair, sizeof(word));
#endif
  return word;
}

/// 2 to the power of x; 0 for very small ones, and for minus infinity. The error of this and of reciprocal() is about
/// 2^-22 (PTX ISA, "ex2", "rcp").
__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ inline float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// The shared memory that a launch asked for.
#define VH_SHARED_MEMORY(type, name) extern __shared__ type name[]

#else  // the functions are those of tests/support/emulator/instruction_words.h

#define VH_SHARED_MEMORY(type, name) auto* const name = static_cast<type*>(::vit_hybrid::testing::shared_memory())

#endif

/// Rounded to T; half types two at a time.
template <class T, int kWidth>
__device__ inline ElementVector<T, kWidth> rounded_vector(const ComputeType<T> (&values)[kWidth]) {
  ElementVector<T, kWidth> result;
  if constexpr (sizeof(T) == 2 && kWidth % 2 == 0) {
    uint32_t words[kWidth / 2];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      words[i] = pair_of<T>(values[2 * i], values[2 * i + 1]);
    }
    memcpy(&result, words, sizeof(result));
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      result[i] = static_cast<T>(values[i]);
    }
  }
  return result;
}

}  // namespace vit_hybrid::kernels

#endif  // __CUDACC__ || VH_EMULATES_KERNELS
