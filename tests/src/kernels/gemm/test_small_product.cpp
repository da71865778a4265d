// Products in bf16 and the pair layout, against plain sums in double.
#include <doctest/doctest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "src/kernels/gemm/packing.h"
#include "src/kernels/gemm/small_product.h"
#include "tests/support/compare.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

struct SmallShape {
  int64_t rows, columns, depth;
};

// Tails of every kind: of vectors, of tiles, and of pairs.
const std::vector<SmallShape> kSmallShapes = {{128, 512, 48}, {128, 48, 512}, {7, 11, 5},   {1, 1, 1},
                                              {33, 17, 3},    {64, 65, 97},   {197, 64, 2}, {16, 100, 1}};

// Rows with a gap behind them, filled with NaN: whatever reads or writes there is seen.
constexpr int64_t kGap = 3;

at::Tensor with_gap(const at::Tensor& x, at::ScalarType type) {
  at::Tensor wide = at::full({x.size(0), x.size(1) + kGap}, std::nan(""), at::TensorOptions(type));
  wide.narrow(1, 0, x.size(1)).copy_(x);
  return wide;
}

at::Tensor in_bf16(at::IntArrayRef shape, uint64_t seed) {
  return normal_tensor(shape, seed).to(at::kBFloat16);
}

// Every element of `pairs` [ceil(rows / 2)][columns][2] against the matrix [rows, columns], or 0.
bool holds_pairs(const at::Tensor& pairs, const at::Tensor& matrix) {
  const int64_t columns = matrix.size(1);
  at::Tensor even = at::zeros({(matrix.size(0) + 1) / 2 * 2, columns}, matrix.options());
  even.narrow(0, 0, matrix.size(0)).copy_(matrix);
  return pairs.narrow(1, 0, columns).equal(even.view({-1, 2, columns}).transpose(1, 2));
}

}  // namespace

TEST_CASE("small product: pairs of rows, of a matrix and of its transpose") {
  for (const SmallShape& shape : kSmallShapes) {
    const int64_t rows = shape.columns;
    const int64_t columns = shape.depth;
    CAPTURE(rows);
    CAPTURE(columns);
    const at::Tensor matrix = in_bf16({rows, columns}, 1);
    const at::Tensor from = with_gap(matrix, at::kBFloat16);
    const auto* const data = from.const_data_ptr<at::BFloat16>();
    at::Tensor pairs = at::full({(rows + 1) / 2, columns + kGap, 2}, std::nan(""), matrix.options());
    kernels::pack_pairs(data, columns + kGap, rows, columns, pairs.mutable_data_ptr<at::BFloat16>(), columns + kGap);
    CHECK(holds_pairs(pairs, matrix));
    CHECK(pairs.narrow(1, columns, kGap).isnan().all().item<bool>());

    at::Tensor transposed = at::full({(columns + 1) / 2, rows + kGap, 2}, std::nan(""), matrix.options());
    kernels::pack_transposed_pairs(data, columns + kGap, rows, columns, transposed.mutable_data_ptr<at::BFloat16>(),
                                   rows + kGap);
    CHECK(holds_pairs(transposed, matrix.t()));
    CHECK(transposed.narrow(1, rows, kGap).isnan().all().item<bool>());

    at::Tensor plain = at::full({columns, rows + kGap}, std::nan(""), matrix.options());
    kernels::transpose_block(data, columns + kGap, rows, columns, plain.mutable_data_ptr<at::BFloat16>(), rows + kGap);
    CHECK(plain.narrow(1, 0, rows).equal(matrix.t()));
    CHECK(plain.narrow(1, rows, kGap).isnan().all().item<bool>());
  }
}

TEST_CASE("small product: bf16 with sums in fp32, any extents") {
  if (!kernels::has_bf16_block_kernel()) {
    MESSAGE("skipped: this processor has no bf16 instructions, or LibTorch no bf16 product");
    return;
  }
  for (const SmallShape& shape : kSmallShapes) {
    CAPTURE(shape.rows);
    CAPTURE(shape.columns);
    CAPTURE(shape.depth);
    const at::Tensor a = in_bf16({shape.rows, shape.depth}, 2);
    const at::Tensor b = in_bf16({shape.depth, shape.columns}, 3);
    const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    const at::Tensor left = with_gap(a, at::kBFloat16);
    at::Tensor pairs = at::full({(shape.depth + 1) / 2, shape.columns + kGap, 2}, std::nan(""), b.options());
    kernels::pack_pairs(b.const_data_ptr<at::BFloat16>(), shape.columns, shape.depth, shape.columns,
                        pairs.mutable_data_ptr<at::BFloat16>(), shape.columns + kGap);
    at::Tensor out = at::full({shape.rows, shape.columns + kGap}, std::nan(""), at::TensorOptions(at::kFloat));
    const kernels::ProductShape extents{shape.rows,         shape.columns,        shape.depth,
                                        shape.depth + kGap, shape.columns + kGap, shape.columns + kGap};
    // Products of bf16 numbers are exact in fp32; their sum is off by about a unit of it, 1.2e-7, for a root of terms.
    const double bound = 1.2e-7 * std::sqrt(static_cast<double>(shape.depth));
    for (const auto store : {kernels::Store::kOverwrite, kernels::Store::kAdd}) {
      kernels::small_product(extents, store, left.const_data_ptr<at::BFloat16>(), pairs.const_data_ptr<at::BFloat16>(),
                             out.mutable_data_ptr<float>());
      const double times = store == kernels::Store::kAdd ? 2.0 : 1.0;
      CHECK(relative_error(out.narrow(1, 0, shape.columns), exact * times) <= bound);
    }
    CHECK(out.narrow(1, shape.columns, kGap).isnan().all().item<bool>());
  }
  kernels::finish_small_products();
}
