// Keyed masks and their application.
#include "model/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "parallel/tensor/own_node.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

namespace {

constexpr int64_t kSitesPerUnit = 16;
constexpr int64_t kGrain = 1 << 12;  // elements of a task

at::Tensor keep_mask(const at::Tensor& x, Range features, int64_t num_features, const DropKey& key,
                     const tensor::StepContext& context) {
  const int64_t tokens = x.size(1);
  const int64_t width = features.size();
  const at::Tensor mask = at::empty(x.sizes(), at::TensorOptions(at::kByte));
  auto* const data = mask.mutable_data_ptr<uint8_t>();
  const RandomStream stream = key.stream(Purpose::kDropout, context);
  const uint32_t threshold = drop_threshold(key.rate);
  const int64_t rows = x.size(0) * tokens;
  at::parallel_for(0, rows, kGrain / std::max<int64_t>(width, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto sample = static_cast<uint64_t>(context.samples[static_cast<size_t>(row / tokens)]);
      const int64_t first = row % tokens * num_features + features.begin;
      fill_keep_row(stream, threshold, sample, static_cast<uint64_t>(first), width, data + row * width);
    }
  });
  return mask.to(x.device());
}

// By sample: 0 if its branch is dropped, else 1 / (1 - rate); [B, 1, 1].
at::Tensor path_scales(const at::Tensor& branch, const DropKey& key, const tensor::StepContext& context) {
  const int64_t num_samples = branch.size(0);
  const at::Tensor scales = at::empty({num_samples, 1, 1}, at::TensorOptions(at::kDouble));
  const RandomStream stream = key.stream(Purpose::kDropPath, context);
  const uint32_t threshold = drop_threshold(key.rate);
  for (int64_t n = 0; n < num_samples; ++n) {
    const auto sample = static_cast<uint64_t>(context.samples[static_cast<size_t>(n)]);
    scales.mutable_data_ptr<double>()[n] = stream.bits(sample) >= threshold ? 1.0 / (1.0 - key.rate) : 0.0;
  }
  return scales.to(branch.options());
}

void check_samples(const at::Tensor& x, const tensor::StepContext& context) {
  VH_ASSERT(x.size(0) == static_cast<int64_t>(context.samples.size()),
            str(x.size(0), " rows for ", context.samples.size(), " sample numbers"));
}

}  // namespace

RandomStream DropKey::stream(Purpose purpose, const tensor::StepContext& context) const {
  const auto place = static_cast<uint64_t>(unit * kSitesPerUnit) + static_cast<uint64_t>(site);
  return RandomStream(context.seed, purpose, static_cast<uint64_t>(context.step), place);
}

uint32_t drop_threshold(double rate) {
  return static_cast<uint32_t>(std::floor(rate * 0x1p32));
}

void fill_keep_row(const RandomStream& stream, uint32_t threshold, uint64_t sample, uint64_t first, int64_t count,
                   uint8_t* keep) {
  constexpr int64_t kBatch = 256;
  std::array<uint32_t, kBatch> draws;
  for (int64_t done = 0; done < count; done += kBatch) {
    const int64_t size = std::min(kBatch, count - done);
    stream.fill_bits(first + static_cast<uint64_t>(done), sample, {draws.data(), static_cast<size_t>(size)});
    for (int64_t i = 0; i < size; ++i) {
      keep[done + i] = draws[static_cast<size_t>(i)] >= threshold ? 1 : 0;
    }
  }
}

at::Tensor dropout(const at::Tensor& x, Range features, int64_t num_features, const DropKey& key,
                   const tensor::StepContext& context) {
  if (!context.training() || key.rate == 0.0) {
    return x;
  }
  check_samples(x, context);
  const double scale = 1.0 / (1.0 - key.rate);
  const at::Tensor mask = keep_mask(x, features, num_features, key, context);
  const at::Tensor y = tensor::without_grad([&] { return at::mul(x, mask).mul_(scale); });
  return tensor::record("dropout", y, {x}, [mask, scale](const at::Tensor& dy) {
    return std::vector<at::Tensor>{at::mul(dy, mask).mul_(scale)};
  });
}

at::Tensor add_residual(const at::Tensor& residual, const at::Tensor& branch, const DropKey& key,
                        const tensor::StepContext& context) {
  if (!context.training() || key.rate == 0.0) {
    const at::Tensor sum = tensor::without_grad([&] { return branch.add_(residual); });
    return tensor::record("add_residual", sum, {residual, branch}, [](const at::Tensor& dy) {
      return std::vector<at::Tensor>{dy, dy};
    });
  }
  check_samples(branch, context);
  const at::Tensor scales = path_scales(branch, key, context);
  const at::Tensor sum = tensor::without_grad([&] { return branch.mul_(scales).add_(residual); });
  return tensor::record("add_residual", sum, {residual, branch}, [scales](const at::Tensor& dy) {
    return std::vector<at::Tensor>{dy, at::mul(dy, scales)};
  });
}

}  // namespace vit_hybrid::model
