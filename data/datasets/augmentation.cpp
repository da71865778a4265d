// Augmentation: crops, resizing along one axis after the other, and mixtures of two samples.
#include "data/datasets/augmentation.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/partition.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr int kAttempts = 10;
constexpr double kSmallestArea = 0.08;
constexpr double kLargestRatio = 4.0 / 3.0;

// Draws of the stream: 0 is the flip, then four for each attempt.
constexpr uint64_t kFlipDraw = 0;
uint64_t draw_number(int attempt, int which) {
  return static_cast<uint64_t>(1 + 4 * attempt + which);
}

// What an output pixel along one axis is made of: the pixels from `first` on, with these weights.
struct Taps {
  int64_t first;
  std::vector<float> weights;
};

double filter(Interpolation interpolation, double x) {
  x = std::abs(x);
  if (interpolation == Interpolation::kBilinear) {
    return std::max(1.0 - x, 0.0);
  }
  constexpr double a = -0.5;
  if (x < 1.0) {
    return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  }
  return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

// Of the `size` output pixels that [start, start + extent) is resized to, from the pixels `allowed`.
std::vector<Taps> make_taps(double start, double extent, int64_t size, Range allowed, Interpolation interpolation) {
  const double scale = extent / static_cast<double>(size);
  const double widening = std::max(scale, 1.0);
  const double support = (interpolation == Interpolation::kBilinear ? 1.0 : 2.0) * widening;
  std::vector<Taps> result;
  for (int64_t i = 0; i < size; ++i) {
    const double centre = start + (static_cast<double>(i) + 0.5) * scale;
    Taps taps;
    taps.first = std::max(static_cast<int64_t>(std::floor(centre - support + 0.5)), allowed.begin);
    const int64_t end = std::min(static_cast<int64_t>(std::floor(centre + support + 0.5)), allowed.end);
    double sum = 0.0;
    for (int64_t pixel = taps.first; pixel < end; ++pixel) {
      const double weight = filter(interpolation, (static_cast<double>(pixel) + 0.5 - centre) / widening);
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : taps.weights) {
      weight = static_cast<float>(weight / sum);
    }
    result.push_back(std::move(taps));
  }
  return result;
}

// Pixels along an axis that a crop may be made of.
Range allowed_pixels(CropEdge edge, double start, double extent, int64_t image_size) {
  if (edge == CropEdge::kImage) {
    return {0, image_size};
  }
  return {std::max<int64_t>(static_cast<int64_t>(std::floor(start)), 0),
          std::min(static_cast<int64_t>(std::ceil(start + extent)), image_size)};
}

// sums[k] = sum over the rows of `taps` of weight x image row, for the interleaved values of columns `columns`.
void add_rows(const uint8_t* image, int64_t width, const Taps& taps, Range columns, std::vector<float>& sums) {
  const auto count = static_cast<size_t>(3 * columns.size());
  std::fill(sums.begin(), sums.end(), 0.0f);
  for (size_t tap = 0; tap < taps.weights.size(); ++tap) {
    const uint8_t* const from = image + 3 * ((taps.first + static_cast<int64_t>(tap)) * width + columns.begin);
    const float weight = taps.weights[tap];
    for (size_t k = 0; k < count; ++k) {
      sums[k] += weight * static_cast<float>(from[k]);
    }
  }
}

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

Crop random_resized_crop(const RandomStream& stream, int64_t height, int64_t width) {
  const double area = static_cast<double>(height * width);
  const bool flip = stream.uniform(kFlipDraw) < 0.5;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double share = kSmallestArea + (1.0 - kSmallestArea) * stream.uniform(draw_number(attempt, 0));
    const double ratio = std::exp((2.0 * stream.uniform(draw_number(attempt, 1)) - 1.0) * std::log(kLargestRatio));
    const auto crop_width = std::llround(std::sqrt(share * area * ratio));
    const auto crop_height = std::llround(std::sqrt(share * area / ratio));
    if (crop_width >= 1 && crop_width <= width && crop_height >= 1 && crop_height <= height) {
      const auto rows = static_cast<uint64_t>(height - crop_height + 1);
      const auto columns = static_cast<uint64_t>(width - crop_width + 1);
      return {static_cast<double>(stream.below(rows, draw_number(attempt, 2))),
              static_cast<double>(stream.below(columns, draw_number(attempt, 3))), static_cast<double>(crop_height),
              static_cast<double>(crop_width), flip};
    }
  }
  // Only images far from square get here: the largest centre crop with an allowed ratio.
  const double crop_width =
      std::min(static_cast<double>(width), std::round(kLargestRatio * static_cast<double>(height)));
  const double crop_height =
      std::min(static_cast<double>(height), std::round(kLargestRatio * static_cast<double>(width)));
  return {std::floor((static_cast<double>(height) - crop_height) / 2.0),
          std::floor((static_cast<double>(width) - crop_width) / 2.0), crop_height, crop_width, flip};
}

Crop center_crop(int64_t height, int64_t width, int64_t resized, int64_t size) {
  VH_ASSERT(size >= 1 && size <= resized, str("crop of ", size, " from ", resized));
  const int64_t whole_pixels = (resized - size) / 2;
  const auto margin = static_cast<double>(whole_pixels);
  const double rows = static_cast<double>(height) / static_cast<double>(resized);
  const double columns = static_cast<double>(width) / static_cast<double>(resized);
  const auto extent = static_cast<double>(size);
  return {margin * rows, margin * columns, extent * rows, extent * columns, false, CropEdge::kImage};
}

void resize_crop(std::span<const uint8_t> image, int64_t height, int64_t width, const Crop& crop, int64_t size,
                 std::span<uint8_t> pixels, Interpolation interpolation) {
  VH_ASSERT(static_cast<int64_t>(image.size()) == 3 * height * width &&
                static_cast<int64_t>(pixels.size()) == 3 * size * size,
            str("image of ", height, " x ", width, ", output of ", size));
  const Range allowed_columns = allowed_pixels(crop.edge, crop.left, crop.width, width);
  const auto rows =
      make_taps(crop.top, crop.height, size, allowed_pixels(crop.edge, crop.top, crop.height, height), interpolation);
  const auto columns = make_taps(crop.left, crop.width, size, allowed_columns, interpolation);
  std::vector<float> line(static_cast<size_t>(3 * allowed_columns.size()));
  uint8_t* to = pixels.data();
  for (int64_t y = 0; y < size; ++y) {
    add_rows(image.data(), width, rows[static_cast<size_t>(y)], allowed_columns, line);
    for (int64_t x = 0; x < size; ++x) {
      const Taps& taps = columns[static_cast<size_t>(crop.flip ? size - 1 - x : x)];
      std::array<float, 3> sums{};
      const float* from = line.data() + 3 * (taps.first - allowed_columns.begin);
      for (const float weight : taps.weights) {
        for (size_t channel = 0; channel < 3; ++channel) {
          sums[channel] += weight * *from++;
        }
      }
      for (const float sum : sums) {
        *to++ = static_cast<uint8_t>(std::clamp(sum + 0.5f, 0.0f, 255.0f));  // bicubic weights overshoot
      }
    }
  }
}

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
