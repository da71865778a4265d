// Strips of samples.
#include "src/kernels/residual.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "src/kernels/device_rows.h"
#include "src/kernels/float_row.h"
#include "src/kernels/norm_rows.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int64_t kRow = 1024;          // elements that are computed at a time
constexpr int64_t kElements = 1 << 15;  // of a thread at least

// residual + scale x -> to, where a null residual is 0; to may be x.
template <class T>
void add_scaled(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& scales, const at::Tensor& to) {
  using F = typename FloatRow<T>::Float;
  const int64_t size = x.size(0) > 0 ? x.numel() / x.size(0) : 0;
  const int64_t strips = (size + kRow - 1) / kRow;
  const SampleScales<F> scale_of(scales, x, x.size(0) * strips);
  at::parallel_for(0, x.size(0) * strips, kElements / kRow, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t done = strip % strips * kRow;
      const int64_t offset = strip / strips * size + done;
      const T* const kept = residual.defined() ? residual.const_data_ptr<T>() + offset : nullptr;
      residual_row(kept, x.const_data_ptr<T>() + offset, scale_of.of_row(strip), to.mutable_data_ptr<T>() + offset,
                   std::min(kRow, size - done));
    }
  });
}

}  // namespace

at::Tensor residual_sum(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales) {
  if (!branch.is_cpu()) {
    return device_residual_sum(residual, branch, scales);
  }
  with_float_type(branch.scalar_type(),
                  [&](auto zero) { add_scaled<decltype(zero)>(residual.contiguous(), branch, scales, branch); });
  return branch;
}

at::Tensor scale_samples(const at::Tensor& x, const at::Tensor& scales) {
  if (!x.is_cpu()) {
    return device_scale_samples(x, scales);
  }
  at::Tensor scaled = at::empty_like(x);
  with_float_type(x.scalar_type(), [&](auto zero) { add_scaled<decltype(zero)>(at::Tensor(), x, scales, scaled); });
  return scaled;
}

at::Tensor branch_gradient(const at::Tensor& dsum, const at::Tensor& scales) {
  return scales.defined() ? scale_samples(dsum.contiguous(), scales) : dsum;
}

}  // namespace vit_hybrid::kernels
