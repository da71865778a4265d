// LayerNorm of tensors, forward and backward: on the host in groups of rows, which stay in the first-level cache
// between their passes.
#include "src/kernels/layer_norm.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <vector>

#include "src/kernels/dropout.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/half_conversion.h"
#include "src/kernels/layer_norm_rows.h"

namespace vit_hybrid::kernels {

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
  return dx;
}

}  // namespace vit_hybrid::kernels
