// Image transforms against LibTorch's antialiased interpolation and the definitions of the crops.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <doctest/doctest.h>

#include <cmath>

#include "data/datasets/augmentation.h"
#include "data/datasets/image_dataset.h"
#include "src/base/error.h"

namespace vit_hybrid::data {
namespace {

// Rounded to the nearest byte, of sums in fp32.
constexpr double kHalfByte = 0.5 + 1e-3;

at::Tensor random_image(int64_t height, int64_t width) {
  return at::randint(0, 256, {height, width, 3}, at::TensorOptions(at::kByte));
}

constexpr Interpolation kBoth[] = {Interpolation::kBilinear, Interpolation::kBicubic};

at::Tensor transform(const at::Tensor& image, const Crop& crop, int64_t size,
                     Interpolation interpolation = Interpolation::kBilinear) {
  at::Tensor pixels = at::empty({size, size, 3}, at::kByte);
  resize_crop({image.const_data_ptr<uint8_t>(), static_cast<size_t>(image.numel())}, image.size(0), image.size(1), crop,
              size, {pixels.data_ptr<uint8_t>(), static_cast<size_t>(pixels.numel())}, interpolation);
  return pixels.permute({2, 0, 1});
}

// The same by LibTorch before it is rounded to bytes: interpolate(align_corners = False, antialias = True) in double.
at::Tensor reference(const at::Tensor& crop, int64_t size, Interpolation interpolation = Interpolation::kBilinear) {
  const at::Tensor planes = crop.permute({2, 0, 1}).to(at::kDouble).unsqueeze(0);
  const at::Tensor resized = interpolation == Interpolation::kBilinear
                                 ? at::_upsample_bilinear2d_aa(planes, at::IntArrayRef{size, size}, false)
                                 : at::_upsample_bicubic2d_aa(planes, at::IntArrayRef{size, size}, false);
  return resized[0].clamp(0.0, 255.0);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace

TEST_CASE("image transform: a whole image is resized as LibTorch does it") {
  for (const auto& [height, width, size] :
       {std::tuple{8, 8, 8}, {8, 12, 5}, {7, 9, 20}, {256, 256, 224}, {100, 64, 9}, {1, 1, 3}}) {
    const at::Tensor image = random_image(height, width);
    const Crop whole{0.0, 0.0, static_cast<double>(height), static_cast<double>(width), false};
    for (const Interpolation interpolation : kBoth) {
      CAPTURE(size);
      CHECK(difference(transform(image, whole, size, interpolation), reference(image, size, interpolation)) <
            kHalfByte);
    }
  }
}

TEST_CASE("image transform: the centre crop of the resized image") {
  const at::Tensor image = random_image(256, 256);
  CHECK(difference(transform(image, center_crop(256, 256, 256, 224), 224),
                   reference(image.narrow(0, 16, 224).narrow(1, 16, 224), 224)) < kHalfByte);
  // Stored at another size: resize, then crop.
  const at::Tensor small = random_image(40, 50);
  const at::Tensor resized = reference(small, 64).narrow(1, 8, 48).narrow(2, 8, 48);
  CHECK(difference(transform(small, center_crop(40, 50, 64, 48), 48), resized) < kHalfByte);
}

TEST_CASE("image transform: the usual centre crop is that of 224 from 256 at any size") {
  CHECK(usual_resized(224) == 256);
  CHECK(usual_resized(384) == 439);
  CHECK(usual_resized(1) == 1);
  for (const int64_t size : {8, 14, 32, 40, 64, 96, 128, 224, 256, 384, 512}) {
    CAPTURE(size);
    const int64_t resized = usual_resized(size);
    CHECK(resized == std::llround(static_cast<double>(size) * 256.0 / 224.0));
    for (const int64_t stored : {size, int64_t{256}}) {
      // The crop has 7/8 of each side, and its middle is the image's; both but for the rounding to whole pixels.
      const Crop crop = center_crop(stored, stored, resized, size);
      const double pixel = static_cast<double>(stored) / static_cast<double>(resized);
      CHECK(std::abs(crop.width - 0.875 * static_cast<double>(stored)) <= 0.5 * pixel);
      CHECK(std::abs(2.0 * crop.left + crop.width - static_cast<double>(stored)) <= 1.001 * pixel);
      CHECK(crop.height == crop.width);
      CHECK(crop.top == crop.left);
    }
  }
}

TEST_CASE("image transform: a flip mirrors, and of a crop inside the image only its own pixels count") {
  const at::Tensor image = random_image(20, 30);
  Crop crop{0.0, 0.0, 20.0, 30.0, false};
  const at::Tensor plain = transform(image, crop, 16);
  crop.flip = true;
  CHECK(at::equal(transform(image, crop, 16), plain.flip(2)));
  for (const Interpolation interpolation : kBoth) {
    for (const int64_t size : {5, 12}) {
      const at::Tensor inside = transform(image, {4.0, 7.0, 9.0, 13.0, false}, size, interpolation);
      const at::Tensor cut = image.narrow(0, 4, 9).narrow(1, 7, 13);
      CHECK(difference(inside, reference(cut, size, interpolation)) < kHalfByte);
    }
  }
}

TEST_CASE("image transform: random crops are inside, keyed, and of the sizes they should be") {
  double sum_share = 0.0;
  int flips = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    const RandomStream stream(3, Purpose::kAugmentation, 5, static_cast<uint64_t>(i));
    const Crop crop = random_resized_crop(stream, 256, 256);
    CHECK(crop.top >= 0.0);
    CHECK(crop.left >= 0.0);
    CHECK(crop.top + crop.height <= 256.0);
    CHECK(crop.left + crop.width <= 256.0);
    CHECK(std::abs(std::log(crop.width / crop.height)) < std::log(4.0 / 3.0) + 0.02);  // rounded to whole pixels
    sum_share += crop.height * crop.width / (256.0 * 256.0);
    flips += crop.flip ? 1 : 0;
    const Crop again =
        random_resized_crop(RandomStream(3, Purpose::kAugmentation, 5, static_cast<uint64_t>(i)), 256, 256);
    CHECK(again.top == crop.top);
    CHECK(again.width == crop.width);
  }
  // Uniform in (0.08, 1), but those that stick out are drawn again, which lowers the mean of 0.54 somewhat.
  CHECK(sum_share / kDraws > 0.45);
  CHECK(sum_share / kDraws < 0.55);
  CHECK(std::abs(flips - kDraws / 2) < 5 * 32);
  const Crop narrow = random_resized_crop(RandomStream(1, Purpose::kAugmentation), 4, 4000);
  CHECK(narrow.height == 4.0);
  CHECK(narrow.width == 5.0);
}

TEST_CASE("image transform: what is impossible is refused") {
  CHECK_THROWS_AS(center_crop(256, 256, 200, 224), Error);
  const at::Tensor image = random_image(4, 4);
  std::vector<uint8_t> pixels(3);
  CHECK_THROWS_AS(resize_crop({image.const_data_ptr<uint8_t>(), 48}, 4, 4, {0, 0, 4, 4, false}, 2, pixels), Error);
}

}  // namespace vit_hybrid::data
