// Normalization of a batch on the host, by the element functions of the device's kernels.
#include "data/loading/normalize_batch.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <limits>

#include "data/loading/normalize_passes.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// All of a plane or image.
constexpr ThreadShare kWhole{0, std::numeric_limits<int64_t>::max(), 1};

template <class T>
void normalize_on_host(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std, const at::Tensor& to) {
  const auto* const means = mean.const_data_ptr<float>();
  const auto* const deviations = std.const_data_ptr<float>();
  const int64_t plane = to.size(2) * to.size(3);
  if (batch.scalar_type() == at::kByte) {
    const ImagePass<T> pass{batch.const_data_ptr<uint8_t>(), to.mutable_data_ptr<T>(), means, deviations, plane};
    const VectorSplit split = pixel_split(pass);
    at::parallel_for(0, to.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t image = begin; image < end; ++image) {
        normalize_image_share(pass, image, split, kWhole);
      }
    });
    return;
  }
  const PlanePass<T> pass{
      batch.const_data_ptr<float>(), to.mutable_data_ptr<T>(), means, deviations, to.size(1), plane};
  const VectorSplit split = plane_split(pass);
  at::parallel_for(0, to.size(0) * to.size(1), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      normalize_plane_share(pass, i, split, kWhole);
    }
  });
}

}  // namespace

std::vector<int64_t> check_normalize_batch(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std) {
  VH_ASSERT(batch.dim() == 4 && batch.is_contiguous(), str("a batch of ", batch.dim(), " dims"));
  const bool is_bytes = batch.scalar_type() == at::kByte;
  VH_ASSERT(is_bytes ? batch.size(3) == kColors : batch.scalar_type() == at::kFloat,
            str("a batch of type ", c10::toString(batch.scalar_type()), " and ", batch.size(3), " columns"));
  const int64_t channels = is_bytes ? kColors : batch.size(1);
  for (const at::Tensor& statistic : {mean, std}) {
    VH_ASSERT(statistic.scalar_type() == at::kFloat && statistic.is_contiguous() && statistic.numel() == channels &&
                  statistic.device() == batch.device(),
              str(statistic.numel(), " statistics on ", statistic.device().str(), " for ", channels, " channels on ",
                  batch.device().str()));
  }
  return is_bytes ? std::vector<int64_t>{batch.size(0), kColors, batch.size(1), batch.size(2)} : batch.sizes().vec();
}

at::Tensor normalize_batch(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std,
                           at::ScalarType type) {
  if (!batch.is_cpu()) {
    return normalize_batch_cuda(batch, mean, std, type);
  }
  at::Tensor to = at::empty(check_normalize_batch(batch, mean, std), type);
  normalize_batch_into(batch, mean, std, to);
  return to;
}

void normalize_batch_into(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std,
                          const at::Tensor& to) {
  VH_ASSERT(to.is_contiguous() && to.sizes() == at::IntArrayRef(check_normalize_batch(batch, mean, std)),
            "the place for normalized values has another shape");
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, to.scalar_type(), "normalize_batch",
                                  [&] { normalize_on_host<scalar_t>(batch, mean, std, to); });
}

}  // namespace vit_hybrid::data
