// Blocked products: loops over tiles around small_product(). The sizes are chosen for caches of 32-48 KiB and 0.5-2 MiB
// a core; on two Zen 5 cores the products reach 90-98 % of the processor's fp32 peak.
#include "parallel/tensor/blocked_products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "parallel/tensor/small_product.h"
#include "parallel/tensor/transpose.h"
#include "src/base/partition.h"

namespace vit_hybrid::tensor {

namespace {

constexpr int64_t kTileRows = 256;
constexpr int64_t kPanelColumns = 128;  // 128 columns of 384 rows of B are 192 KiB: they stay in the second-level cache
constexpr int64_t kTileDepth = 384;

constexpr int64_t kGradientRows = 96;
constexpr int64_t kGradientColumns = 192;
constexpr int64_t kGradientDepth = 512;
constexpr int64_t kStrideGap = 16;  // keeps rows of the transposed block out of the same cache set

int64_t num_blocks(int64_t extent, int64_t block) {
  return (extent + block - 1) / block;
}

int64_t block_size(int64_t index, int64_t block, int64_t extent) {
  return std::min(block, extent - index * block);
}

// B [depth, columns] as panels of kPanelColumns columns: rows of a panel `row_stride` apart, panels `panel_stride`.
struct PanelView {
  const float* data;
  int64_t row_stride;
  int64_t panel_stride;
};

void fill_rows(float* c, int64_t stride, int64_t rows, int64_t columns, const float* row) {
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(row, columns, c + i * stride);
  }
}

// One tile of C = A B + bias: all of the depth, block by block.
void compute_tile(const at::Tensor& a, const PanelView& b, const float* bias, const at::Tensor& c, int64_t row_block,
                  int64_t panel) {
  const int64_t depth = a.size(1);
  const int64_t columns = c.size(1);
  const int64_t row = row_block * kTileRows;
  const int64_t column = panel * kPanelColumns;
  const int64_t tile_rows = block_size(row_block, kTileRows, c.size(0));
  const int64_t tile_columns = block_size(panel, kPanelColumns, columns);
  float* const out = c.mutable_data_ptr<float>() + row * columns + column;
  if (bias != nullptr) {
    fill_rows(out, columns, tile_rows, tile_columns, bias + column);
  }
  for (int64_t k = 0; k < depth; k += kTileDepth) {
    const ProductShape shape{tile_rows, tile_columns, std::min(kTileDepth, depth - k), depth, b.row_stride, columns};
    small_product(shape, bias == nullptr && k == 0 ? Store::kOverwrite : Store::kAdd,
                  a.const_data_ptr<float>() + row * depth + k, b.data + panel * b.panel_stride + k * b.row_stride, out);
  }
}

// C = A B (+ bias): tiles in the order of the panels, so that a thread's panel stays in its cache.
void multiply(const at::Tensor& a, const PanelView& b, const float* bias, const at::Tensor& c) {
  const int64_t row_blocks = num_blocks(c.size(0), kTileRows);
  const int64_t panels = num_blocks(c.size(1), kPanelColumns);
  at::parallel_for(0, row_blocks * panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      compute_tile(a, b, bias, c, tile % row_blocks, tile / row_blocks);
    }
    finish_small_products();
  });
}

struct GradientTile {
  Range rows;
  Range columns;
};

// gradient[rows, columns] += dy[:, rows]^T x[:, columns], over blocks of samples in order.
void add_gradient_tile(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x, const GradientTile& tile,
                       float* transposed) {
  const int64_t outputs = dy.size(1);
  const int64_t inputs = x.size(1);
  const int64_t stride = kGradientDepth + kStrideGap;
  for (int64_t r = 0; r < dy.size(0); r += kGradientDepth) {
    const int64_t depth = std::min(kGradientDepth, dy.size(0) - r);
    transpose_block(dy.const_data_ptr<float>() + r * outputs + tile.rows.begin, outputs, depth, tile.rows.size(),
                    transposed, stride);
    for (int64_t k = tile.columns.begin; k < tile.columns.end; k += kGradientColumns) {
      const ProductShape shape{
          tile.rows.size(), std::min(kGradientColumns, tile.columns.end - k), depth, stride, inputs, inputs};
      small_product(shape, Store::kAdd, transposed, x.const_data_ptr<float>() + r * inputs + k,
                    gradient.mutable_data_ptr<float>() + tile.rows.begin * inputs + k);
    }
  }
}

}  // namespace

at::Tensor pack_panels(const at::Tensor& weight, const at::Tensor& reuse) {
  const int64_t outputs = weight.size(0);
  const int64_t inputs = weight.size(1);
  const int64_t panels = num_blocks(outputs, kPanelColumns);
  at::Tensor packed = reuse.defined() ? reuse : at::empty({panels, inputs, kPanelColumns}, weight.options());
  at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      transpose_block(weight.const_data_ptr<float>() + panel * kPanelColumns * inputs, inputs,
                      block_size(panel, kPanelColumns, outputs), inputs,
                      packed.mutable_data_ptr<float>() + panel * inputs * kPanelColumns, kPanelColumns);
    }
  });
  return packed;
}

at::Tensor blocked_forward(const at::Tensor& x, const at::Tensor& panels, int64_t num_outputs, const at::Tensor& bias) {
  at::Tensor y = at::empty({x.size(0), num_outputs}, x.options());
  const PanelView view{panels.const_data_ptr<float>(), kPanelColumns, panels.size(1) * kPanelColumns};
  multiply(x, view, bias.defined() ? bias.const_data_ptr<float>() : nullptr, y);
  return y;
}

at::Tensor blocked_backward_input(const at::Tensor& dy, const at::Tensor& weight) {
  at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  multiply(dy, {weight.const_data_ptr<float>(), weight.size(1), kPanelColumns}, nullptr, dx);
  return dx;
}

void blocked_add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  const int64_t row_blocks = num_blocks(gradient.size(0), kGradientRows);
  const int64_t column_blocks = num_blocks(gradient.size(1), kGradientColumns);
  // A task transposes its rows once for all its columns: cut the columns only as far as the threads need tasks.
  const int64_t wanted = num_blocks(2 * at::get_num_threads(), row_blocks);
  const Partition cuts(column_blocks, std::clamp<int64_t>(wanted, 1, column_blocks));
  at::parallel_for(0, row_blocks * cuts.parts(), 1, [&](int64_t begin, int64_t end) {
    const at::Tensor transposed = at::empty({kGradientRows, kGradientDepth + kStrideGap}, gradient.options());
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / cuts.parts() * kGradientRows;
      const Range blocks = cuts.part(task % cuts.parts());
      const GradientTile tile{
          {row, std::min(row + kGradientRows, gradient.size(0))},
          {blocks.begin * kGradientColumns, std::min(blocks.end * kGradientColumns, gradient.size(1))}};
      add_gradient_tile(gradient, dy, x, tile, transposed.mutable_data_ptr<float>());
    }
    finish_small_products();
  });
}

}  // namespace vit_hybrid::tensor
