// Blocked products (GEMM) of forward, input gradient and weight gradient: loops over tiles around small_product().
//
// The sizes are chosen for caches of 32-48 KiB and 0.5-2 MiB a core; on two Zen 5 cores the products reach 90-98 % of
// the processor's peak.
#include "src/kernels/gemm/blocked_products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "src/base/memory_tracker.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/gemm/packing.h"
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
      store_gelu_row(sums, bias + columns.begin, activated + row * stride, columns.size(), out.gelu);
    }
  }
}

// The tiles of threads `own` of `threads`: a result is cut into blocks of `block` of its `extent` rows or columns, of
// which the last may be a narrow one, and each block into `tiles`; every thread takes as much of it. Tiles are numbered
// block by block, so that what a thread's tiles have in common stays in its cache.
Range tiles_of_threads(Range own, int64_t threads, int64_t block, int64_t extent, int64_t tiles) {
  if (tiles == 0) return {};
  const auto tile_at = [&](int64_t position) {
    const int64_t index = position / (tiles * block);
    const int64_t rest = position - index * tiles * block;
    return index * tiles + (rest == 0 ? 0 : rest / block_range(index, block, extent).size());
  };
  const Partition positions(tiles * extent, threads);
  return {tile_at(positions.part(own.begin).begin), tile_at(positions.part(own.end - 1).end)};
}

// A B + bias.
template <class T>
void multiply(const at::Tensor& a, const at::Tensor& panels, const at::Tensor& bias, const BlockedOutput& out) {
  const int64_t num_columns = bias.size(0);
  const int64_t row_blocks = num_blocks(a.size(0), kTileRows<T>), threads = at::get_num_threads();
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    const at::Tensor tile = at::empty({kTileRows<T>, kPanelColumns<T>}, at::kFloat);
    float* const sums = tile.mutable_data_ptr<float>();
    const Range own = tiles_of_threads({begin, end}, threads, kPanelColumns<T>, num_columns, row_blocks);
    for (int64_t index = own.begin; index < own.end; ++index) {
      const int64_t panel = index / row_blocks;
      const Range rows = block_range(index % row_blocks, kTileRows<T>, a.size(0));
      const Range columns = block_range(panel, kPanelColumns<T>, num_columns);
      sum_tile<T>(a, panels, panel, rows, columns.size(), sums);
      store_tile<T>(sums, bias.const_data_ptr<float>(), rows, columns, num_columns, out);
    }
    finish_small_products();
  });
}

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
    transpose_padded(from, outputs, depth, rows.size(), transposed, stride);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int64_t columns = block_range(panel, kPanelColumns<T>, inputs).size();
      const ProductShape shape{rows.size(), columns, padded_depth<T>(depth), stride, kPanelColumns<T>, target.stride};
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
  add_rounded(gradient.narrow(0, rows.begin, rows.size()).narrow(1, begin, columns), sums);
}

template <class T>
void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor right = pack_panels(x);
  const int64_t inputs = gradient.size(1), num_panels = right.size(0), threads = at::get_num_threads();
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    const MemoryScope scope_of_thread(MemoryClass::kWorkspaces);
    const at::Tensor block = at::empty({kRows, kDepth + kStrideGap}, dy.options());
    T* const transposed = block.mutable_data_ptr<T>();
    Range own = tiles_of_threads({begin, end}, threads, kRows, gradient.size(0), num_panels);
    while (own.begin < own.end) {  // rows are transposed once for all of their panels
      const Range rows = block_range(own.begin / num_panels, kRows, gradient.size(0));
      const int64_t panel = own.begin % num_panels;
      const Range panels{panel, std::min(num_panels, panel + own.size())};
      own.begin += panels.size();
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

int64_t blocked_thread_bytes(at::ScalarType type, at::ScalarType gradient, int64_t outputs, int64_t inputs) {
  const auto bytes = [&](auto element) {
    using T = decltype(element);
    const int64_t tile = kTileRows<T> * kPanelColumns<T> * static_cast<int64_t>(sizeof(float));
    const int64_t block = kRows * (kDepth + kStrideGap) * static_cast<int64_t>(sizeof(T));
    const int64_t rounded =
        gradient == at::kFloat ? 0 : std::min(kRows, outputs) * inputs * static_cast<int64_t>(sizeof(float));
    return std::max(tile, block + rounded);
  };
  return type == at::kFloat ? bytes(float()) : bytes(c10::BFloat16());
}

void blocked_add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) {
    add_weight_gradient<float>(gradient, dy, x);
  } else {
    add_weight_gradient<c10::BFloat16>(gradient, dy, x);
  }
}

}  // namespace vit_hybrid::kernels
