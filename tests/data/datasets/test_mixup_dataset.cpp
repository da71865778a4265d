// Mixup: the distribution of its draws, and mixtures against their definition.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "data/datasets/augmentation.h"
#include "data/datasets/memory_dataset.h"

namespace vit_hybrid::data {
namespace {

constexpr int64_t kClasses = 5;

MixupOptions options_with(double alpha) {
  return {.alpha = alpha, .num_samples = 40, .num_classes = kClasses, .seed = 9};
}

SyntheticDataset some_images() {
  return SyntheticDataset::images(50, {3, 4, 6}, kClasses, 3);
}

}  // namespace

TEST_CASE("mixup: shares follow Beta(alpha, alpha), partners are uniform, and both are keyed") {
  constexpr int kDraws = 20000;
  for (const double alpha : {0.2, 1.0, 2.0}) {
    const MixupOptions options = options_with(alpha);
    double sum = 0.0;
    double sum_of_squares = 0.0;
    std::vector<int> partners(static_cast<size_t>(options.num_samples));
    for (int i = 0; i < kDraws; ++i) {
      const Mix mix = draw_mix(options, 7, i);
      REQUIRE(mix.share >= 0.0);
      REQUIRE(mix.share <= 1.0);
      sum += mix.share;
      sum_of_squares += (mix.share - 0.5) * (mix.share - 0.5);
      ++partners.at(static_cast<size_t>(mix.partner));
    }
    CAPTURE(alpha);
    // Mean 1/2 and variance 1 / (4 (2 alpha + 1)); five standard errors of each.
    const double variance = 0.25 / (2.0 * alpha + 1.0);
    CHECK(std::abs(sum / kDraws - 0.5) < 5.0 * std::sqrt(variance / kDraws));
    CHECK(std::abs(sum_of_squares / kDraws - variance) < 5.0 * 0.25 / std::sqrt(kDraws));
    for (const int count : partners) {
      CHECK(std::abs(count - kDraws / 40) < 5.0 * std::sqrt(kDraws / 40.0));
    }
  }
  const MixupOptions options = options_with(1.0);
  CHECK(draw_mix(options, 1, 2).share == draw_mix(options, 1, 2).share);
  CHECK(draw_mix(options, 1, 2).share != draw_mix(options, 2, 2).share);
  CHECK(draw_mix(options, 1, 2).share != draw_mix(options, 1, 3).share);
}

TEST_CASE("mixup: images and classes are mixed by the same share") {
  const MixupOptions options = options_with(1.0);
  const SyntheticDataset plain = some_images();
  const MixupDataset mixed(std::make_unique<SyntheticDataset>(some_images()), options);
  CHECK(mixed.size() == 50);
  CHECK(mixed.target_shape() == std::vector<int64_t>{kClasses});
  const std::vector<int64_t> samples = {11, 49, 0, 3};
  const Batch batch = mixed.read(samples, {}, 4);
  CHECK(batch.samples == samples);
  for (size_t i = 0; i < samples.size(); ++i) {
    const Mix mix = draw_mix(options, 4, samples[i]);
    const Batch pair = plain.read(std::vector<int64_t>{samples[i], mix.partner}, {}, 4);
    const auto index = static_cast<int64_t>(i);
    const at::Tensor expected =
        mix.share * pair.inputs[0].to(at::kDouble) + (1.0 - mix.share) * pair.inputs[1].to(at::kDouble);
    CHECK((batch.inputs[index].to(at::kDouble) - expected).abs().max().item<double>() < 1e-6);
    at::Tensor classes = at::zeros({kClasses}, at::kDouble);
    classes[pair.targets[0].item<int64_t>()] += mix.share;
    classes[pair.targets[1].item<int64_t>()] += 1.0 - mix.share;
    CHECK((batch.targets[index].to(at::kDouble) - classes).abs().max().item<double>() < 1e-6);
  }
  // Any part alone, and any order, gives the same.
  CHECK(!mixed.read(samples, {.input = false}, 4).inputs.defined());
  CHECK(at::equal(mixed.read(std::vector<int64_t>{3}, {.input = false}, 4).targets[0], batch.targets[3]));
  CHECK(at::equal(mixed.read(std::vector<int64_t>{49}, {.target = false}, 4).inputs[0], batch.inputs[1]));
}

}  // namespace vit_hybrid::data
