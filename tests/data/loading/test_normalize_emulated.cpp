// The kernels that normalize batches on the host, in grid and block form, against one loop: the same bits.
#include "data/loading/normalize_cuda.h"
#include "tests/support/emulator/kernel_test.h"

using namespace vit_hybrid;
using namespace vit_hybrid::data;
using namespace vit_hybrid::testing;

namespace {

// Repeats of planes: images, or samples and channels. Shifts: elements behind an address of 16 bytes.
struct Planes {
  int64_t repeats, plane, from_shift, to_shift;
};

// One block of vectors and several; no whole vectors; odd addresses of either array; more than a grid has along y.
std::vector<Planes> all_planes() {
  if (kByThreads) return {{2, 32, 0, 0}, {2, 33, 0, 0}};
  return {{2, 8, 0, 0},  {3, 4200, 0, 0}, {2, 12288, 0, 0}, {1, 1, 0, 0},  {3, 1033, 0, 0},
          {2, 64, 3, 0}, {2, 64, 0, 1},   {2, 65, 1, 1},    {35, 8, 0, 0}, {35, 3, 0, 0}};
}

// What a value becomes, said once more.
template <class T>
double expected_value(float value, float mean, float std) {
  const float difference = value - mean;
  const float quotient = difference / std;
  return static_cast<double>(static_cast<T>(quotient));
}

struct Statistics {
  explicit Statistics(int64_t channels) : mean(channels), std(channels) {
    fill(mean, 1);
    fill(std, 2);
    for (float& value : std)
      value = std::fabs(value) + 0.5F;
  }
  GuardedArray<float> mean, std;
};

}  // namespace

TEST_CASE("emulated: bytes of images are normalized, by vectors and one by one") {
  const Statistics of(kColors);
  for_types([&](auto zero) {
    using T = decltype(zero);
    for (const auto& [images, pixels, from_shift, to_shift] : all_planes()) {
      CAPTURE(images);
      CAPTURE(pixels);
      CAPTURE(from_shift);
      CAPTURE(to_shift);
      const int64_t count = images * pixels * kColors;
      const GuardedArray<uint8_t> bytes(count, from_shift);
      const GuardedArray<T> planes(count, to_shift);
      for (int64_t i = 0; i < count; ++i)
        bytes[i] = static_cast<uint8_t>(i * 37 % kByteValues);
      const ImagePass<T> pass{bytes.data(), of.mean.data(), of.std.data(), planes.data(), images, pixels};
      in_all_orders([&] { launch_normalize(pass, nullptr); }, [&](const auto& add) { add(planes); });
      std::vector<double> expected;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t image = i / pixels / kColors, color = i / pixels % kColors, pixel = i % pixels;
        const auto byte = static_cast<float>(bytes[(image * pixels + pixel) * kColors + color]);
        expected.push_back(expected_value<T>(byte / 255.0F, of.mean[color], of.std[color]));
      }
      CHECK(in_double(planes) == expected);
    }
  });
}

TEST_CASE("emulated: fields are normalized by channel, by vectors and one by one") {
  for_types([](auto zero) {
    using T = decltype(zero);
    for (const auto& [planes, plane, from_shift, to_shift] : all_planes()) {
      CAPTURE(planes);
      CAPTURE(plane);
      CAPTURE(from_shift);
      CAPTURE(to_shift);
      const int64_t channels = planes % 5 == 0 ? 5 : planes;
      const Statistics of(channels);
      const GuardedArray<float> values(planes * plane, from_shift);
      const GuardedArray<T> normalized(planes * plane, to_shift);
      fill(values, 3);
      const FieldPass<T> pass{values.data(), of.mean.data(), of.std.data(), normalized.data(), planes, plane, channels};
      in_all_orders([&] { launch_normalize(pass, nullptr); }, [&](const auto& add) { add(normalized); });
      std::vector<double> expected;
      for (int64_t i = 0; i < values.size(); ++i) {
        const int64_t channel = i / plane % channels;
        expected.push_back(expected_value<T>(values[i], of.mean[channel], of.std[channel]));
      }
      CHECK(in_double(normalized) == expected);
    }
  });
}
