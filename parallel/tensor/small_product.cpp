// Products through LibTorch's exported brgemm (oneDNN) and gemm (BLAS).
#include "parallel/tensor/small_product.h"

#include <ATen/native/CPUBlas.h>
#include <c10/util/Exception.h>

#include <array>

namespace vit_hybrid::tensor {

namespace {

namespace blas = at::native::cpublas;

// BLAS is column-major: C^T = B^T A^T.
template <class T>
void blas_product(const ProductShape& shape, Store store, const T* a, const T* b, T* c) {
  using at::native::TransposeType;
  blas::gemm(TransposeType::NoTranspose, TransposeType::NoTranspose, shape.columns, shape.rows,
             shape.depth, T(1), b, shape.stride_b, a, shape.stride_a,
             store == Store::kAdd ? T(1) : T(0), c, shape.stride_c);
}

void block_product(const ProductShape& shape, Store store, const float* a, const float* b,
                   float* c) {
  blas::brgemm(shape.rows, shape.columns, shape.depth, shape.stride_a, shape.stride_b,
               shape.stride_c, store == Store::kAdd, a, b, c, false);
}

// Processors and builds of LibTorch without the kernel refuse it with an exception: asked once.
bool probe_block_kernel() {
  constexpr int64_t kExtent = 16;
  const std::array<float, kExtent * kExtent> zeros{};
  std::array<float, kExtent * kExtent> out{};
  try {
    block_product({kExtent, kExtent, kExtent, kExtent, kExtent, kExtent}, Store::kOverwrite,
                  zeros.data(), zeros.data(), out.data());
    blas::brgemm_release(false);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

bool has_block_kernel() {
  static const bool has = probe_block_kernel();
  return has;
}

void small_product(const ProductShape& shape, Store store, const float* a, const float* b,
                   float* c) {
  if (has_block_kernel()) {
    block_product(shape, store, a, b, c);
  } else {
    blas_product(shape, store, a, b, c);
  }
}

void small_product(const ProductShape& shape, Store store, const double* a, const double* b,
                   double* c) {
  blas_product(shape, store, a, b, c);
}

void finish_small_products() {
  if (has_block_kernel()) {
    blas::brgemm_release(false);
  }
}

}  // namespace vit_hybrid::tensor
