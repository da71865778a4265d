// Products of matrices that fit into the caches (micro-kernels), the building block of the blocked kernels on the host.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace vit_hybrid::kernels {

enum class Store { kOverwrite, kAdd };

/// C [rows, columns] from A [rows, depth] and B [depth, columns], all row-major with the given distances between rows.
struct ProductShape {
  int64_t rows;
  int64_t columns;
  int64_t depth;
  int64_t stride_a;
  int64_t stride_b;
  int64_t stride_c;
};

/// C = A B, or C += A B, on the calling thread. Every extent is at least 1. The bits depend on the shape only.
void small_product(const ProductShape& shape, Store store, const float* a, const float* b, float* c);
void small_product(const ProductShape& shape, Store store, const double* a, const double* b, double* c);

/// The same for A in bf16, row-major, and B in bf16 in pairs of rows (pack_pairs() in packing.h), stride_b pairs
/// between two rows of pairs; the sums are fp32. An odd depth is allowed: the second half of the last pairs is not read
/// as a number. Only where has_bf16_block_kernel().
void small_product(const ProductShape& shape, Store store, const c10::BFloat16* a, const c10::BFloat16* b_pairs,
                   float* c);

/// True if the fp32 product runs on oneDNN's block kernel (generated for the shape at its first use), else on BLAS.
bool has_block_kernel();

/// True if LibTorch has the bf16 product and the processor multiplies bf16 (AVX512-BF16 or AMX): without such
/// instructions oneDNN would imitate them, several times slower than fp32.
bool has_bf16_block_kernel();

/// The setting that keeps oneDNN's kernel of this type from instructions that the processor has, AVX-512 or for bf16
/// those of bf16: "ONEDNN_MAX_CPU_ISA=AVX2"; empty where there is none.
std::string limiting_setting(at::ScalarType type);
/// "this processor has no bf16 instructions", or what else has_bf16_block_kernel() lacks; empty where it is true.
std::string why_no_bf16_block_kernel();

/// A task that computed products calls this at its end: the kernels may have changed the processor's matrix state.
void finish_small_products();

}  // namespace vit_hybrid::kernels
