// Forward and input gradient: loops over tiles around small_product(). The sizes are chosen for caches of 32-48 KiB and
// 0.5-2 MiB a core; on two Zen 5 cores the products reach 90-98 % of the processor's peak.
#include "src/kernels/gemm/blocked_products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "src/base/memory_tracker.h"
#include "src/kernels/gemm/linear_rows.h"
#include "src/kernels/gemm/panels.h"
#include "src/kernels/gemm/small_product.h"

namespace vit_hybrid::kernels {

namespace {

// A tile of sums takes 64-72 KiB.
template <class T>
constexpr int64_t kTileRows = sizeof(T) == 4 ? 96 : 64;

// sums [tile rows, kPanelColumns] = A times a panel: all of the depth, block by block.
template <class T>
void sum_tile(const at::Tensor& a, const at::Tensor& panels, int64_t panel, Range rows, int64_t columns, float* sums) {
  const int64_t depth = a.size(1);
  for (int64_t k = 0; k < depth; k += kPanelDepth<T>) {
    const ProductShape shape{rows.size(), columns,          std::min(kPanelDepth<T>, depth - k),
                             depth,       kPanelColumns<T>, kPanelColumns<T>};
    small_product(shape, k == 0 ? Store::kOverwrite : Store::kAdd, a.const_data_ptr<T>() + rows.begin * depth + k,
                  panel_rows<T>(panels, panel, k), sums);
  }
}

// The first element of a tile in a result; null where the result is not wanted.
template <class T>
T* tile_of(const at::Tensor& to, Range rows, Range columns) {
  return to.defined() ? to.mutable_data_ptr<T>() + rows.begin * to.size(1) + columns.begin : nullptr;
}

// `bias` and the results have `stride` columns.
template <class T>
void store_tile(const float* sums, const float* bias, Range rows, Range columns, int64_t stride,
                const BlockedOutput& out) {
  T* const linear = tile_of<T>(out.linear, rows, columns);
  T* const activated = tile_of<T>(out.activated, rows, columns);
  for (int64_t row = 0; row < rows.size(); ++row, sums += kPanelColumns<T>) {
    if (linear != nullptr) {
      store_row(sums, bias + columns.begin, linear + row * stride, columns.size());
    }
    if (activated != nullptr) {
      store_gelu_row(sums, bias + columns.begin, activated + row * stride, columns.size());
    }
  }
}

// The tiles of `part`, one of `parts` with equally many columns in all: the last panel may be a narrow one. Tiles are
// numbered in the order of the panels, so that a thread's panel stays in its cache.
template <class T>
Range tiles_of_part(int64_t part, int64_t parts, int64_t row_blocks, int64_t num_columns) {
  const auto tile_at = [&](int64_t position) {
    const int64_t panel = position / (row_blocks * kPanelColumns<T>);
    const int64_t columns = block_range(panel, kPanelColumns<T>, num_columns).size();
    const int64_t rest = position - panel * row_blocks * kPanelColumns<T>;
    return panel * row_blocks + (rest == 0 ? 0 : rest / columns);
  };
  const Range positions = Partition(row_blocks * num_columns, parts).part(part);
  return {tile_at(positions.begin), tile_at(positions.end)};
}

// A B + bias.
template <class T>
void multiply(const at::Tensor& a, const at::Tensor& panels, const at::Tensor& bias, const BlockedOutput& out) {
  const int64_t num_columns = bias.size(0);
  const int64_t row_blocks = num_blocks(a.size(0), kTileRows<T>);
  if (row_blocks == 0) {
    return;
  }
  const int64_t parts = at::get_num_threads();
  at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    const at::Tensor tile = at::empty({kTileRows<T>, kPanelColumns<T>}, at::kFloat);
    float* const sums = tile.mutable_data_ptr<float>();
    const Range tasks{tiles_of_part<T>(begin, parts, row_blocks, num_columns).begin,
                      tiles_of_part<T>(end - 1, parts, row_blocks, num_columns).end};
    for (int64_t task = tasks.begin; task < tasks.end; ++task) {
      const int64_t panel = task / row_blocks;
      const Range rows = block_range(task % row_blocks, kTileRows<T>, a.size(0));
      const Range columns = block_range(panel, kPanelColumns<T>, num_columns);
      sum_tile<T>(a, panels, panel, rows, columns.size(), sums);
      store_tile<T>(sums, bias.const_data_ptr<float>(), rows, columns, num_columns, out);
    }
    finish_small_products();
  });
}

}  // namespace

void blocked_forward(const at::Tensor& x, const at::Tensor& panels, const at::Tensor& bias, const BlockedOutput& out) {
  if (x.scalar_type() == at::kFloat) {
    multiply<float>(x, panels, bias, out);
  } else {
    multiply<c10::BFloat16>(x, panels, bias, out);
  }
}

void blocked_backward_input(const at::Tensor& dy, const at::Tensor& panels, const at::Tensor& dx) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  blocked_forward(dy, panels, at::zeros({dx.size(1)}, at::kFloat), {dx, {}});
}

}  // namespace vit_hybrid::kernels
