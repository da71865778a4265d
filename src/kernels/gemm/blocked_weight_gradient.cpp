// The gradient of the weight: each thread takes rows of it, transposes the columns of dy that make them, and
// multiplies.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "src/base/memory_tracker.h"
#include "src/kernels/gemm/blocked_products.h"
#include "src/kernels/gemm/pair_layout.h"
#include "src/kernels/gemm/panels.h"
#include "src/kernels/gemm/small_product.h"
#include "src/kernels/gemm/transpose.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int64_t kRows = 192;
constexpr int64_t kDepth = 512;     // even
constexpr int64_t kStrideGap = 16;  // keeps rows of the transposed block out of the same cache set

// Asks for `rows` rows of a block of dy that is transposed later: few columns of many rows, which no processor
// foresees.
template <class T>
void prefetch_rows(const T* from, int64_t stride, int64_t rows, int64_t columns) {
  constexpr int64_t kCacheLine = 64 / sizeof(T);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; column += kCacheLine) {
      __builtin_prefetch(from + row * stride + column);
    }
  }
}

struct Target {
  float* sums;  // of the first row and column of a tile
  int64_t stride;
};

// sums [rows, columns of `panels`] += dy[:, rows]^T x, over blocks of samples in order. x is given by its panels.
template <class T>
void add_tile(const at::Tensor& dy, const at::Tensor& x, Range rows, Range panels, int64_t inputs, T* transposed,
              const Target& target) {
  const int64_t outputs = dy.size(1);
  const int64_t stride = kDepth + kStrideGap;
  const auto next_depth = [&](int64_t r) { return std::clamp<int64_t>(dy.size(0) - r - kDepth, 0, kDepth); };
  for (int64_t r = 0; r < dy.size(0); r += kDepth) {
    const int64_t depth = std::min(kDepth, dy.size(0) - r);
    const T* const from = dy.const_data_ptr<T>() + r * outputs + rows.begin;
    transpose_block(from, outputs, depth, rows.size(), transposed, stride);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int64_t columns = block_range(panel, kPanelColumns<T>, inputs).size();
      const ProductShape shape{rows.size(), columns, depth, stride, kPanelColumns<T>, target.stride};
      small_product(shape, Store::kAdd, transposed, panel_rows<T>(x, panel, r),
                    target.sums + (panel - panels.begin) * kPanelColumns<T>);
      const Range share = Partition(next_depth(r), panels.size()).part(panel - panels.begin);
      prefetch_rows(from + (kDepth + share.begin) * outputs, outputs, share.size(), rows.size());
    }
  }
}

// A gradient narrower than the sums: they are made apart, and added once.
template <class T>
void add_rounded_tile(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x, Range rows, Range panels,
                      T* transposed) {
  const int64_t inputs = gradient.size(1);
  const int64_t begin = panels.begin * kPanelColumns<T>;
  const int64_t columns = std::min(panels.end * kPanelColumns<T>, inputs) - begin;
  const at::Tensor sums = at::zeros({rows.size(), columns}, at::kFloat);
  add_tile(dy, x, rows, panels, inputs, transposed, {sums.mutable_data_ptr<float>(), columns});
  gradient.narrow(0, rows.begin, rows.size()).narrow(1, begin, columns).add_(sums);
}

template <class T>
void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor right = pack_panels(x);
  const int64_t inputs = gradient.size(1);
  const int64_t row_blocks = num_blocks(gradient.size(0), kRows);
  // A task transposes its rows once for all its columns: cut the columns only as far as the threads need tasks.
  const int64_t wanted = num_blocks(2 * at::get_num_threads(), row_blocks);
  const Partition cuts(right.size(0), std::clamp<int64_t>(wanted, 1, right.size(0)));
  at::parallel_for(0, row_blocks * cuts.parts(), 1, [&](int64_t begin, int64_t end) {
    const MemoryScope scope_of_thread(MemoryClass::kWorkspaces);
    const at::Tensor block = at::empty({kRows, kDepth + kStrideGap}, dy.options());
    T* const transposed = block.mutable_data_ptr<T>();
    for (int64_t task = begin; task < end; ++task) {
      const Range rows = block_range(task / cuts.parts(), kRows, gradient.size(0));
      const Range panels = cuts.part(task % cuts.parts());
      if (gradient.scalar_type() == at::kFloat) {
        float* const first = gradient.mutable_data_ptr<float>() + rows.begin * inputs;
        add_tile(dy, right, rows, panels, inputs, transposed, {first + panels.begin * kPanelColumns<T>, inputs});
      } else {
        add_rounded_tile(gradient, dy, right, rows, panels, transposed);
      }
    }
    finish_small_products();
  });
}

}  // namespace

void blocked_add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) {
    add_weight_gradient<float>(gradient, dy, x);
  } else {
    add_weight_gradient<c10::BFloat16>(gradient, dy, x);
  }
}

}  // namespace vit_hybrid::kernels
