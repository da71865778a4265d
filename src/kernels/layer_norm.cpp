// LayerNorm, forward and backward, on the host: the loops over rows, also of residual sums and dropout, compiled for
// several instruction sets of which the program takes the widest at its start, and for bf16 the processor's bf16 unit
// where it has one; tensors in groups of rows, which stay in the first-level cache between their passes.

// How a vector is passed differs between instruction sets; here none is, everything is inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "src/kernels/layer_norm.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "src/base/instruction_sets.h"
#include "src/kernels/dropout.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/half_conversion.h"
#include "src/kernels/lanes.h"
#include "src/kernels/layer_norm_arithmetic.h"

namespace vit_hybrid::kernels {

template <class T, class F>
VH_INLINE void add_branch(const T* residual, const T* branch, F scale, T* sum, int64_t n) {
  using V = typename Lanes<T>::V;
  store_lanes(n, sum, [=](int64_t i, auto part, V& v) VH_INLINED {
    V added;
    V kept = {};
    part.load(branch + i, added);
    if (residual != nullptr) {
      part.load(residual + i, kept);
    }
    v = residual_sum(kept, added, scale);
  });
}

template <class T, class F>
VH_INLINE void keep_elements(const T* x, const uint8_t* keep, F scale, T* kept, int64_t n) {
  using V = typename Lanes<T>::V;
  store_lanes(n, kept, [=](int64_t i, auto part, V& v) VH_INLINED {
    V mask;
    part.load(x + i, v);
    part.load_bytes(keep + i, mask);
    v *= mask * scale;
  });
}

namespace detail {

// Rows of which each pass is made before the next: one's sums are waited for behind the others'.
constexpr int64_t kGroup = 4;

template <class T, class F>
VH_INLINE void norm_group(const T* x, T* y, int64_t count, F* mean, F* rstd, const NormRows<F>& rows) {
  using V = typename Lanes<F>::V;
  const int64_t n = rows.n;
  for (int64_t row = 0; row < count; ++row) {
    const auto value = [=](int64_t i, auto part, V& v) VH_INLINED { part.load(x + row * n + i, v); };
    mean[row] = sum_lanes<F>(n, value) / F(n);
  }
  for (int64_t row = 0; row < count; ++row) {
    const auto square = [=, mean = mean[row]](int64_t i, auto part, V& v) VH_INLINED {
      part.load(x + row * n + i, v);
      v -= mean;
      part.template clear_others<F>(v);
      v *= v;
    };
    rstd[row] = F(1) / std::sqrt(sum_lanes<F>(n, square) / F(n) + rows.eps);
  }
  for (int64_t row = 0; row < count; ++row) {
    const NormStatistics<F> statistics{mean[row], rstd[row]};
    const auto output = [=, weight = rows.weight, bias = rows.bias](int64_t i, auto part, V& v) VH_INLINED {
      V w, b;
      part.load(x + row * n + i, v);
      part.load(weight + i, w);
      part.load(bias + i, b);
      v = norm_output(v, statistics, w, b);
    };
    store_lanes(n, y + row * n, output);
  }
}

// The row's part in the gradients of the parameters, and the means that its own gradient needs. Keeps x^ in the
// workspace where T is not F.
template <class T, class F>
VH_INLINE NormMeans<F> add_to_parameters(const NormRowsBackward<T, F>& arrays, int64_t row, F* dweight, F* dbias,
                                         const NormRows<F>& rows) {
  using V = typename Lanes<F>::V;
  const int64_t n = rows.n;
  const T* const dy = arrays.dy + row * n;
  const T* const x = arrays.x + row * n;
  const NormStatistics<F> statistics{arrays.mean[row], arrays.rstd[row]};
  V gradients = {};
  V products = {};
  const F* const weight = rows.weight;
  F* const workspace = rows.workspace;
  for_lanes<F>(n, [=, &gradients, &products](int64_t i, auto part) VH_INLINED {
    V above, v, w, dw, db;
    part.load(dy + i, above);
    part.load(x + i, v);
    part.load(weight + i, w);
    part.load(dweight + i, dw);
    part.load(dbias + i, db);
    v = normalized(v, statistics);
    if constexpr (!std::is_same_v<T, F>) {
      part.store(workspace + i, v);
    }
    const V of_weight = above * v;
    part.store(dweight + i, dw + of_weight);
    part.store(dbias + i, db + above);
    gradients += above * w;
    products += of_weight * w;
  });
  return {sum_of<F>(gradients) / F(n), sum_of<F>(products) / F(n)};
}

template <class T, class F>
VH_INLINE void differentiate_row(const NormRowsBackward<T, F>& arrays, int64_t row, NormMeans<F> means,
                                 const NormRows<F>& rows) {
  using V = typename Lanes<F>::V;
  const int64_t n = rows.n;
  const T* const dy = arrays.dy + row * n;
  const T* const x = arrays.x + row * n;
  const T* const residual = arrays.residual == nullptr ? nullptr : arrays.residual + row * n;
  const NormStatistics<F> statistics{arrays.mean[row], arrays.rstd[row]};
  const F* const weight = rows.weight;
  const F* const workspace = rows.workspace;
  const auto gradient = [=](int64_t i, auto part, V& v) VH_INLINED {
    V above, w;
    V beside = {};
    part.load(dy + i, above);
    if constexpr (std::is_same_v<T, F>) {
      part.load(x + i, v);
      v = normalized(v, statistics);
    } else {
      part.load(workspace + i, v);
    }
    part.load(weight + i, w);
    if (residual != nullptr) {
      part.load(residual + i, beside);
    }
    v = norm_gradient_at(above, v, statistics.rstd, w, means) + beside;
  };
  store_lanes(n, arrays.dx + row * n, gradient);
}

}  // namespace detail

template <class T, class F>
VH_INLINE void norm_all(const T* x, T* y, int64_t count, F* mean, F* rstd, const NormRows<F>& rows) {
  for (int64_t row = 0; row < count; row += detail::kGroup) {
    const int64_t begin = row * rows.n;
    detail::norm_group(x + begin, y + begin, std::min(detail::kGroup, count - row), mean + row, rstd + row, rows);
  }
}

template <class T, class F>
VH_INLINE void add_and_norm_all(const T* residual, T* branch, const F* scales, T* y, int64_t count, F* mean, F* rstd,
                                const NormRows<F>& rows) {
  for (int64_t row = 0; row < count; row += detail::kGroup) {
    const int64_t group = std::min(detail::kGroup, count - row);
    for (int64_t i = row; i < row + group; ++i) {
      add_branch(residual + i * rows.n, branch + i * rows.n, scales[i], branch + i * rows.n, rows.n);
    }
    const int64_t begin = row * rows.n;
    detail::norm_group(branch + begin, y + begin, group, mean + row, rstd + row, rows);
  }
}

// Row by row: memory is slower where rows are read side by side, or read again after the next.
template <class T, class F>
VH_INLINE void differentiate_all(const NormRowsBackward<T, F>& arrays, int64_t count, F* dweight, F* dbias,
                                 const NormRows<F>& rows) {
  for (int64_t row = 0; row < count; ++row) {
    const NormMeans<F> means = detail::add_to_parameters(arrays, row, dweight, dbias, rows);
    detail::differentiate_row(arrays, row, means, rows);
  }
}

namespace versions {

template <class T, class F>
VH_VERSIONS void norm_rows(const T* x, T* y, int64_t count, F* mean, F* rstd, const NormRows<F>& rows) {
  norm_all(x, y, count, mean, rstd, rows);
}

template <class T, class F>
VH_VERSIONS void residual_norm_rows(const T* residual, T* branch, const F* scales, T* y, int64_t count, F* mean,
                                    F* rstd, const NormRows<F>& rows) {
  add_and_norm_all(residual, branch, scales, y, count, mean, rstd, rows);
}

template <class T, class F>
VH_VERSIONS void norm_backward_rows(const NormRowsBackward<T, F>& arrays, int64_t count, F* dweight, F* dbias,
                                    const NormRows<F>& rows) {
  differentiate_all(arrays, count, dweight, dbias, rows);
}

template <class T, class F>
VH_VERSIONS void residual_row(const T* residual, const T* branch, F scale, T* sum, int64_t n) {
  add_branch(residual, branch, scale, sum, n);
}

template <class T, class F>
VH_VERSIONS void keep_row(const T* x, const uint8_t* keep, F scale, T* kept, int64_t n) {
  keep_elements(x, keep, scale, kept, n);
}

}  // namespace versions

// Half-length rows by way of fp32, a few at a time: they stay in the first-level cache.
namespace widened {

namespace {

template <class T>
void norm_rows(const T* x, T* y, int64_t count, float* mean, float* rstd, const NormRows<float>& rows) {
  float* const wide = rows.workspace;
  for (int64_t row = 0; row < count; row += kWidenedRows) {
    const int64_t group = std::min(kWidenedRows, count - row);
    convert(x + row * rows.n, wide, group * rows.n);
    versions::norm_rows(wide, wide, group, mean + row, rstd + row, rows);
    convert(wide, y + row * rows.n, group * rows.n);
  }
}

template <class T>
void residual_norm_rows(const T* residual, T* branch, const float* scales, T* y, int64_t count, float* mean,
                        float* rstd, const NormRows<float>& rows) {
  const int64_t n = rows.n;
  float* const kept = rows.workspace;
  float* const sum = rows.workspace + n;
  for (int64_t row = 0; row < count; row += kWidenedRows) {
    const int64_t group = std::min(kWidenedRows, count - row);
    for (int64_t i = row; i < row + group; ++i) {
      convert(residual + i * n, kept, n);
      convert(branch + i * n, sum, n);
      versions::residual_row(kept, sum, scales[i], sum, n);
      convert(sum, branch + i * n, n);
    }
    norm_rows(branch + row * n, y + row * n, group, mean + row, rstd + row, rows);
  }
}

template <class T>
void norm_backward_rows(const NormRowsBackward<T, float>& arrays, int64_t count, float* dweight, float* dbias,
                        const NormRows<float>& rows) {
  float* const dy = rows.workspace;
  float* const x = dy + kWidenedRows * rows.n;
  float* const residual = x + kWidenedRows * rows.n;
  for (int64_t row = 0; row < count; row += kWidenedRows) {
    const int64_t group = std::min(kWidenedRows, count - row);
    const int64_t first = row * rows.n;
    convert(arrays.dy + first, dy, group * rows.n);
    convert(arrays.x + first, x, group * rows.n);
    if (arrays.residual != nullptr) {
      convert(arrays.residual + first, residual, group * rows.n);
    }
    const NormRowsBackward<float, float> wide = {
        dy, x, arrays.mean + row, arrays.rstd + row, arrays.residual == nullptr ? nullptr : residual, dy};
    versions::norm_backward_rows(wide, group, dweight, dbias, rows);
    convert(dy, arrays.dx + first, group * rows.n);
  }
}

}  // namespace

}  // namespace widened

namespace bf16_unit {

namespace {

using c10::BFloat16;

const UnitBFloat16* of_unit(const BFloat16* x) {
  return reinterpret_cast<const UnitBFloat16*>(x);
}

UnitBFloat16* of_unit(BFloat16* x) {
  return reinterpret_cast<UnitBFloat16*>(x);
}

VH_AVX512_BF16 void norm_rows(const BFloat16* x, BFloat16* y, int64_t count, float* mean, float* rstd,
                              const NormRows<float>& rows) {
  norm_all(of_unit(x), of_unit(y), count, mean, rstd, rows);
}

VH_AVX512_BF16 void residual_norm_rows(const BFloat16* residual, BFloat16* branch, const float* scales, BFloat16* y,
                                       int64_t count, float* mean, float* rstd, const NormRows<float>& rows) {
  add_and_norm_all(of_unit(residual), of_unit(branch), scales, of_unit(y), count, mean, rstd, rows);
}

VH_AVX512_BF16 void norm_backward_rows(const NormRowsBackward<BFloat16, float>& a, int64_t count, float* dweight,
                                       float* dbias, const NormRows<float>& rows) {
  const NormRowsBackward<UnitBFloat16, float> arrays = {of_unit(a.dy), of_unit(a.x),        a.mean,
                                                        a.rstd,        of_unit(a.residual), of_unit(a.dx)};
  differentiate_all(arrays, count, dweight, dbias, rows);
}

VH_AVX512_BF16 void residual_row(const BFloat16* residual, const BFloat16* branch, float scale, BFloat16* sum,
                                 int64_t n) {
  add_branch(of_unit(residual), of_unit(branch), scale, of_unit(sum), n);
}

VH_AVX512_BF16 void keep_row(const BFloat16* x, const uint8_t* keep, float scale, BFloat16* kept, int64_t n) {
  keep_elements(of_unit(x), keep, scale, of_unit(kept), n);
}

}  // namespace

}  // namespace bf16_unit

// Ends the caller by bf16_unit::function where T is bf16 and the processor has the unit.
#define VH_TRY_UNIT(function, ...)                  \
  if constexpr (std::is_same_v<T, c10::BFloat16>) { \
    if (has_avx512_bf16()) {                        \
      return bf16_unit::function(__VA_ARGS__);      \
    }                                               \
  }

// By way of fp32 for half-length types, else by the version for the processor's instruction set.
#define VH_CALL(function, ...)       \
  if constexpr (sizeof(T) == 2) {    \
    widened::function(__VA_ARGS__);  \
  } else {                           \
    versions::function(__VA_ARGS__); \
  }

template <class T, class F>
void norm_rows(const T* x, T* y, int64_t count, F* mean, F* rstd, const NormRows<F>& rows) {
  VH_TRY_UNIT(norm_rows, x, y, count, mean, rstd, rows)
  VH_CALL(norm_rows, x, y, count, mean, rstd, rows)
}

template <class T, class F>
void residual_norm_rows(const T* residual, T* branch, const F* scales, T* y, int64_t count, F* mean, F* rstd,
                        const NormRows<F>& rows) {
  VH_TRY_UNIT(residual_norm_rows, residual, branch, scales, y, count, mean, rstd, rows)
  VH_CALL(residual_norm_rows, residual, branch, scales, y, count, mean, rstd, rows)
}

template <class T, class F>
void norm_backward_rows(const NormRowsBackward<T, F>& arrays, int64_t count, F* dweight, F* dbias,
                        const NormRows<F>& rows) {
  VH_TRY_UNIT(norm_backward_rows, arrays, count, dweight, dbias, rows)
  VH_CALL(norm_backward_rows, arrays, count, dweight, dbias, rows)
}

template <class T, class F>
void residual_row(const T* residual, const T* branch, F scale, T* sum, int64_t n) {
  VH_TRY_UNIT(residual_row, residual, branch, scale, sum, n)
  versions::residual_row(residual, branch, scale, sum, n);
}

template <class T, class F>
void keep_row(const T* x, const uint8_t* keep, F scale, T* kept, int64_t n) {
  VH_TRY_UNIT(keep_row, x, keep, scale, kept, n)
  versions::keep_row(x, keep, scale, kept, n);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T and F are types.
#define VH_INSTANTIATE(T, F)                                                                            \
  template void norm_rows(const T*, T*, int64_t, F*, F*, const NormRows<F>&);                           \
  template void residual_norm_rows(const T*, T*, const F*, T*, int64_t, F*, F*, const NormRows<F>&);    \
  template void norm_backward_rows(const NormRowsBackward<T, F>&, int64_t, F*, F*, const NormRows<F>&); \
  template void residual_row(const T*, const T*, F, T*, int64_t);                                       \
  template void keep_row(const T*, const uint8_t*, F, T*, int64_t)
// NOLINTEND(bugprone-macro-parentheses)

VH_INSTANTIATE(float, float);
VH_INSTANTIATE(double, double);
VH_INSTANTIATE(c10::BFloat16, float);
VH_INSTANTIATE(c10::Half, float);

namespace {

constexpr int64_t kElements = 1 << 15;  // of a thread at least

int64_t num_rows(const at::Tensor& x) {
  return x.numel() / std::max<int64_t>(x.size(-1), 1);
}

Normed empty_normed(const at::Tensor& x) {
  const auto options = x.options().dtype(at::toOpMathType(x.scalar_type()));
  return {at::empty_like(x), at::empty({num_rows(x)}, options), at::empty({num_rows(x)}, options)};
}

// What the rows of one thread share: the parameters, widened once, and the workspace.
template <class T>
class ThreadRows {
 public:
  using F = typename FloatRow<T>::Float;

  ThreadRows(const at::Tensor& weight, const at::Tensor& bias, double eps)
      : n_(weight.numel()),
        weight_(n_),
        bias_(n_),
        workspace_(FloatRow<T>::kIsConverted ? kWorkspaceRows * n_ : 0),
        rows_{n_, static_cast<F>(eps), weight_.read(weight.const_data_ptr<T>(), n_),
              bias.defined() ? bias_.read(bias.const_data_ptr<T>(), n_) : nullptr, workspace_.data()} {}
  ThreadRows(const ThreadRows&) = delete;  // rows_ points into it
  ThreadRows& operator=(const ThreadRows&) = delete;

  const NormRows<F>& rows() const { return rows_; }

 private:
  int64_t n_;
  FloatRow<T> weight_;
  FloatRow<T> bias_;
  AlignedRow<F> workspace_;
  NormRows<F> rows_;
};

// Calls `norm(begin, end, mean, rstd, rows)` on each thread for its rows of x and the places of their statistics.
template <class T, class Norm>
void norm_on_host(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, const Normed& out,
                  const Norm& norm) {
  using F = typename FloatRow<T>::Float;
  at::parallel_for(0, num_rows(x), kElements / weight.numel() + 1, [&](int64_t begin, int64_t end) {
    const ThreadRows<T> thread(weight, bias, eps);
    norm(begin, end, out.mean.mutable_data_ptr<F>() + begin, out.rstd.mutable_data_ptr<F>() + begin, thread.rows());
  });
}

template <class T>
void backward_on_host(const at::Tensor& dy, const NormInput& input, const at::Tensor& weight,
                      const at::Tensor& residual_gradient, const at::Tensor& dx, const ColumnSums& dweight,
                      const ColumnSums& dbias) {
  using F = typename FloatRow<T>::Float;
  const int64_t n = weight.numel();
  const T* const above = dy.const_data_ptr<T>();
  const T* const x = input.x.const_data_ptr<T>();
  const T* const beside = residual_gradient.defined() ? residual_gradient.const_data_ptr<T>() : nullptr;
  at::parallel_for(0, dweight.num_blocks(), 1, [&](int64_t begin, int64_t end) {
    const ThreadRows<T> thread(weight, at::Tensor(), 0.0);
    for (int64_t block = begin; block < end; ++block) {
      const Range rows = dweight.block(block);
      const int64_t first = rows.begin * n;
      const NormRowsBackward<T, F> arrays = {above + first,
                                             x + first,
                                             input.mean.const_data_ptr<F>() + rows.begin,
                                             input.rstd.const_data_ptr<F>() + rows.begin,
                                             beside == nullptr ? nullptr : beside + first,
                                             dx.mutable_data_ptr<T>() + first};
      norm_backward_rows(arrays, rows.size(), dweight.sums<F>(block), dbias.sums<F>(block), thread.rows());
    }
  });
}

}  // namespace

Normed layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (!x.is_cpu()) {
    return device_layer_norm(x, weight, bias, eps);
  }
  const Normed out = empty_normed(x);
  with_float_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* const from = x.const_data_ptr<T>();
    T* const to = out.y.mutable_data_ptr<T>();
    norm_on_host<T>(x, weight, bias, eps, out,
                    [=](int64_t begin, int64_t end, auto* mean, auto* rstd, const auto& rows) {
                      norm_rows(from + begin * rows.n, to + begin * rows.n, end - begin, mean, rstd, rows);
                    });
  });
  return out;
}

NormedSum residual_layer_norm(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales,
                              const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (!branch.is_cpu()) {
    return device_residual_layer_norm(residual, branch, scales, weight, bias, eps);
  }
  const Normed out = empty_normed(branch);
  with_float_type(branch.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using F = typename FloatRow<T>::Float;
    const SampleScales<F> scale_of(scales, branch, num_rows(branch));
    const T* const kept = residual.const_data_ptr<T>();
    T* const sum = branch.mutable_data_ptr<T>();
    T* const to = out.y.mutable_data_ptr<T>();
    norm_on_host<T>(
        branch, weight, bias, eps, out, [=](int64_t begin, int64_t end, F* mean, F* rstd, const NormRows<F>& rows) {
          std::vector<F> of_rows(static_cast<size_t>(end - begin));
          for (int64_t row = begin; row < end; ++row) {
            of_rows[static_cast<size_t>(row - begin)] = scale_of.of_row(row);
          }
          const int64_t first = begin * rows.n;
          residual_norm_rows(kept + first, sum + first, of_rows.data(), to + first, end - begin, mean, rstd, rows);
        });
  });
  return {branch, out};
}

at::Tensor layer_norm_backward(const at::Tensor& dy, const NormInput& input, const at::Tensor& weight,
                               const at::Tensor& residual_gradient, const NormGradients& gradients) {
  if (!dy.is_cpu()) {
    return device_layer_norm_backward(dy, input, weight, residual_gradient, gradients);
  }
  at::Tensor dx = at::empty_like(dy);
  const auto type = at::toOpMathType(dy.scalar_type());
  const ColumnSums dweight(num_rows(dy), weight.numel(), type);
  const ColumnSums dbias(num_rows(dy), weight.numel(), type);
  with_float_type(dy.scalar_type(), [&](auto zero) {
    backward_on_host<decltype(zero)>(dy, input, weight, residual_gradient, dx, dweight, dbias);
  });
  dweight.add_to(gradients.weight);
  dbias.add_to(gradients.bias);
  if (gradients.added_bias.defined()) {
    add_column_sums(gradients.added_bias, dx.view({num_rows(dx), dx.size(-1)}));
  }
  return dx;
}

}  // namespace vit_hybrid::kernels
