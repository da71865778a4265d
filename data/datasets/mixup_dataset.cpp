// Draws and mixing of MixupDataset.
#include "data/datasets/mixup_dataset.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <utility>

#include "src/base/error.h"
#include "src/base/random.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// M. D. Joehnk, "Erzeugung von betaverteilten und gammaverteilten Zufallszahlen", Metrika 8 (1964). Draws from `first`
// on; at alpha 2 one attempt in six is accepted.
double symmetric_beta(const RandomStream& stream, uint64_t first, double alpha) {
  for (uint64_t i = first;; i += 2) {
    const double x = std::pow(stream.uniform(i), 1.0 / alpha);
    const double y = std::pow(stream.uniform(i + 1), 1.0 / alpha);
    if (x + y > 0.0 && x + y <= 1.0) {
      return x / (x + y);
    }
  }
}

}  // namespace

Mix draw_mix(const MixupOptions& options, int64_t epoch, int64_t sample) {
  const RandomStream stream(options.seed, Purpose::kMixup, static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample));
  const auto partner = static_cast<int64_t>(stream.below(static_cast<uint64_t>(options.num_samples), 0));
  return {partner, symmetric_beta(stream, 1, options.alpha)};
}

MixupDataset::MixupDataset(std::unique_ptr<Dataset> images, const MixupOptions& options)
    : images_(std::move(images)), options_(options) {
  VH_ASSERT(options.alpha > 0.0 && options.alpha <= 2.0, str("alpha ", options.alpha));
  VH_ASSERT(options.num_samples >= 1 && options.num_samples <= images_->size(), str(options.num_samples, " samples"));
  VH_ASSERT(images_->target_shape().empty(), "mixup of targets that are no classes");
}

Batch MixupDataset::read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const {
  const auto count = static_cast<int64_t>(samples.size());
  std::vector<Mix> mixes;
  std::vector<int64_t> both(samples.begin(), samples.end());
  for (const int64_t sample : samples) {
    mixes.push_back(draw_mix(options_, epoch, sample));
    both.push_back(mixes.back().partner);
  }
  VH_ASSERT(parts.form == ValueForm::kNormalized, "mixed images are no bytes");
  const Batch read = images_->read(both, parts, epoch);
  Batch batch;
  batch.samples.assign(samples.begin(), samples.end());
  if (parts.input) {
    batch.inputs = read.inputs.narrow(0, 0, count);
    for (int64_t i = 0; i < count; ++i) {
      const double share = mixes[static_cast<size_t>(i)].share;
      batch.inputs[i].mul_(share).add_(read.inputs[count + i], 1.0 - share);
    }
  }
  if (parts.target) {
    const at::Tensor targets = host_tensor({count, options_.num_classes}, at::kFloat, parts.memory).zero_();
    const auto* const labels = read.targets.const_data_ptr<int64_t>();
    auto* const data = targets.mutable_data_ptr<float>();
    for (int64_t i = 0; i < count; ++i) {
      const double share = mixes[static_cast<size_t>(i)].share;
      data[i * options_.num_classes + labels[i]] += static_cast<float>(share);
      data[i * options_.num_classes + labels[count + i]] += static_cast<float>(1.0 - share);
    }
    batch.targets = targets;
  }
  return batch;
}

}  // namespace vit_hybrid::data
