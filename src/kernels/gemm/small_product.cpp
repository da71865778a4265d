// Products through oneDNN's block kernel as LibTorch exports it, else through ATen (BLAS).
#include "src/kernels/gemm/small_product.h"

#include <ATen/native/CPUBlas.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <exception>

#include "src/base/instruction_sets.h"
#include "src/base/text.h"

namespace vit_hybrid::kernels {

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

void block_product(const ProductShape& shape, Store store, const c10::BFloat16* a, const c10::BFloat16* b, float* c) {
  at::native::cpublas::brgemm(shape.rows, shape.columns, shape.depth, shape.stride_a, shape.stride_b, shape.stride_c,
                              store == Store::kAdd, a, b, c, true);
}

// Processors and builds of LibTorch without the kernel refuse it with an exception of ATen's, settings of oneDNN with
// one of oneDNN's: asked once.
template <class T>
bool probe_block_kernel() {
  constexpr int64_t kExtent = 16;
  const std::array<T, kExtent * kExtent> zeros{};
  std::array<float, kExtent * kExtent> out{};
  try {
    block_product({kExtent, kExtent, kExtent, kExtent, kExtent, kExtent}, Store::kOverwrite, zeros.data(), zeros.data(),
                  out.data());
    finish_small_products();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool processor_has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

// Of the names that oneDNN's setting takes, those of instruction sets without AVX-512, or without its bf16 part.
bool lacks_instructions(std::string set, at::ScalarType type) {
  constexpr std::array kWithoutBf16 = {"AVX512_CORE", "AVX512_CORE_VNNI", "SSE41",      "AVX",
                                       "AVX2",        "AVX2_VNNI",        "AVX2_VNNI_2"};
  constexpr size_t kWithAvx512 = 2;
  std::transform(set.begin(), set.end(), set.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto* const first = kWithoutBf16.begin() + (type == at::kBFloat16 ? 0 : kWithAvx512);
  return std::find(first, kWithoutBf16.end(), set) != kWithoutBf16.end();
}

// C (+)= the last row of B, alone in its pairs, times the last column of A.
void last_row_product(const ProductShape& shape, Store store, const c10::BFloat16* a, const c10::BFloat16* b_pairs,
                      float* c) {
  const int64_t last = shape.depth - 1;
  const c10::BFloat16* const b = b_pairs + last * shape.stride_b;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float left = a[row * shape.stride_a + last];
    float* const to = c + row * shape.stride_c;
    for (int64_t column = 0; column < shape.columns; ++column) {
      const float product = left * static_cast<float>(b[2 * column]);
      to[column] = store == Store::kAdd ? to[column] + product : product;
    }
  }
}

}  // namespace

bool has_block_kernel() {
  static const bool has = probe_block_kernel<float>();
  return has;
}

bool has_bf16_block_kernel() {
  static const bool has = has_avx512_bf16() && probe_block_kernel<c10::BFloat16>();
  return has;
}

std::string limiting_setting(at::ScalarType type) {
  if (type == at::kBFloat16 ? !has_avx512_bf16() : !processor_has_avx512()) {
    return "";
  }
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {  // oneDNN looks at the first that is set
    if (const char* const set = std::getenv(name)) {
      return lacks_instructions(set, type) ? str(name, "=", set) : "";
    }
  }
  return "";
}

std::string why_no_bf16_block_kernel() {
  if (has_bf16_block_kernel()) {
    return "";
  }
  if (!has_avx512_bf16()) {
    return "this processor has no bf16 instructions (AVX512-BF16, AMX)";
  }
  const std::string setting = limiting_setting(at::kBFloat16);
  return setting.empty() ? "this LibTorch has no bf16 block kernel" : setting + " forbids oneDNN bf16 instructions";
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

void small_product(const ProductShape& shape, Store store, const c10::BFloat16* a, const c10::BFloat16* b_pairs,
                   float* c) {
  // The tile instructions of AMX take whole pairs only.
  ProductShape whole = shape;
  whole.depth = shape.depth / 2 * 2;
  if (whole.depth > 0) {
    block_product(whole, store, a, b_pairs, c);
  }
  if (whole.depth < shape.depth) {
    last_row_product(shape, whole.depth > 0 ? Store::kAdd : store, a, b_pairs, c);
  }
}

void finish_small_products() {
  at::native::cpublas::brgemm_release(true);
}

}  // namespace vit_hybrid::kernels
