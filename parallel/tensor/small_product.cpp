// Products through oneDNN's block kernel as LibTorch exports it, else through ATen (BLAS).
#include "parallel/tensor/small_product.h"

#include <ATen/native/CPUBlas.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/util/Exception.h>

#include <array>

namespace vit_hybrid::tensor {

namespace {

template <class T>
at::Tensor matrix(const T* data, int64_t rows, int64_t columns, int64_t stride) {
  // from_blob() has no form for data that is only read.
  return at::from_blob(const_cast<T*>(data), {rows, columns}, {stride, 1},
                       at::TensorOptions(c10::CppTypeToScalarType<T>::value));
}

template <class T>
void blas_product(const ProductShape& shape, Store store, const T* a, const T* b, T* c) {
  at::Tensor out = matrix(c, shape.rows, shape.columns, shape.stride_c);
  const at::Tensor left = matrix(a, shape.rows, shape.depth, shape.stride_a);
  const at::Tensor right = matrix(b, shape.depth, shape.columns, shape.stride_b);
  if (store == Store::kAdd) {
    out.addmm_(left, right);
  } else {
    at::mm_out(out, left, right);
  }
}

void block_product(const ProductShape& shape, Store store, const float* a, const float* b, float* c) {
  at::native::cpublas::brgemm(shape.rows, shape.columns, shape.depth, shape.stride_a, shape.stride_b, shape.stride_c,
                              store == Store::kAdd, a, b, c, false);
}

// Processors and builds of LibTorch without the kernel refuse it with an exception: asked once.
bool probe_block_kernel() {
  constexpr int64_t kExtent = 16;
  const std::array<float, kExtent * kExtent> zeros{};
  std::array<float, kExtent * kExtent> out{};
  try {
    block_product({kExtent, kExtent, kExtent, kExtent, kExtent, kExtent}, Store::kOverwrite, zeros.data(), zeros.data(),
                  out.data());
    at::native::cpublas::brgemm_release(false);
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

void small_product(const ProductShape& shape, Store store, const float* a, const float* b, float* c) {
  if (has_block_kernel()) {
    block_product(shape, store, a, b, c);
  } else {
    blas_product(shape, store, a, b, c);
  }
}

void small_product(const ProductShape& shape, Store store, const double* a, const double* b, double* c) {
  blas_product(shape, store, a, b, c);
}

void finish_small_products() {
  if (has_block_kernel()) {
    at::native::cpublas::brgemm_release(false);
  }
}

}  // namespace vit_hybrid::tensor
