// Crops and bilinear sampling.
#include "data/image_transform.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/base/error.h"
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

// What an output pixel along one axis is made of: (1 - share) image[low] + share image[high].
struct Tap {
  int64_t low;
  int64_t high;
  float share;
};

std::vector<Tap> taps(double start, double extent, int64_t size, int64_t image_size, bool flip) {
  std::vector<Tap> result(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    const double at = start + (static_cast<double>(i) + 0.5) * extent / static_cast<double>(size) - 0.5;
    const double inside = std::clamp(at, 0.0, static_cast<double>(image_size - 1));
    const auto low = static_cast<int64_t>(inside);
    result[static_cast<size_t>(flip ? size - 1 - i : i)] = {low, std::min(low + 1, image_size - 1),
                                                            static_cast<float>(inside - static_cast<double>(low))};
  }
  return result;
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
  return {margin * rows, margin * columns, extent * rows, extent * columns, false};
}

void resize_crop(std::span<const uint8_t> image, int64_t height, int64_t width, const Crop& crop, int64_t size,
                 const ColorStatistics& statistics, std::span<float> planes) {
  VH_ASSERT(static_cast<int64_t>(image.size()) == 3 * height * width &&
                static_cast<int64_t>(planes.size()) == 3 * size * size,
            str("image of ", height, " x ", width, ", output of ", size));
  const auto rows = taps(crop.top, crop.height, size, height, false);
  const auto columns = taps(crop.left, crop.width, size, width, crop.flip);
  const auto pixel = [&](int64_t row, int64_t column, size_t channel) {
    return static_cast<float>(image[static_cast<size_t>(3 * (row * width + column)) + channel]);
  };
  for (size_t channel = 0; channel < 3; ++channel) {
    const float scale = 1.0f / (255.0f * statistics.std[channel]);
    const float shift = statistics.mean[channel] / statistics.std[channel];
    float* to = planes.data() + channel * static_cast<size_t>(size * size);
    for (const Tap& row : rows) {
      for (const Tap& column : columns) {
        const float low = pixel(row.low, column.low, channel);
        const float high = pixel(row.high, column.low, channel);
        const float left = low + row.share * (high - low);
        const float low_right = pixel(row.low, column.high, channel);
        const float high_right = pixel(row.high, column.high, channel);
        const float right = low_right + row.share * (high_right - low_right);
        *to++ = (left + column.share * (right - left)) * scale - shift;
      }
    }
  }
}

}  // namespace vit_hybrid::data
