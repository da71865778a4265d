// The threads that normalize a batch on a GPU, run on the host one after the other, and the host's loops, against
// ATen's operations one by one: the same bits.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <utility>

#include "data/loading/normalize.h"
#include "data/loading/normalize_cuda.h"
#include "tests/support/kernel_arrays.h"

using namespace vit_hybrid;
using namespace vit_hybrid::data;
using namespace vit_hybrid::testing;

namespace {

struct Statistics {
  explicit Statistics(int64_t channels)
      : mean(normals({channels}, 1, at::kFloat)), std(normals({channels}, 2, at::kFloat).abs() + 0.5) {}
  at::Tensor mean, std;
};

// 255 is a tensor, because ATen multiplies by the inverse of a number.
at::Tensor by_operations(const at::Tensor& batch, const Statistics& of, at::ScalarType type) {
  at::Tensor values = batch;
  if (batch.scalar_type() == at::kByte) {
    values = batch.permute({0, 3, 1, 2}).to(at::kFloat).div(at::full({1}, 255.0F));
  }
  const auto by_channel = [](const at::Tensor& statistic) { return statistic.view({1, -1, 1, 1}); };
  return values.sub(by_channel(of.mean)).div(by_channel(of.std)).to(type).contiguous();
}

// Bytes of every value in every color: steps of 37 go through all 256.
at::Tensor bytes(at::IntArrayRef shape) {
  const at::Tensor images = at::empty(shape, at::kByte);
  for (int64_t i = 0; i < images.numel(); ++i) {
    images.data_ptr<uint8_t>()[i] = static_cast<uint8_t>(i * 37 % kByteValues);
  }
  return images;
}

template <int kWidth, class T>
void check_images(int64_t rows, int64_t columns) {
  const Statistics of(kColors);
  const at::Tensor images = bytes({2, rows, columns, kColors}), expected = by_operations(images, of, kType<T>);
  const at::Tensor planes = unwritten(expected, kType<T>);
  const ImagePass<T> pass{images.const_data_ptr<uint8_t>(),
                          of.mean.const_data_ptr<float>(),
                          of.std.const_data_ptr<float>(),
                          planes.data_ptr<T>(),
                          2,
                          rows * columns};
  ByteTable<T> table;
  for (int thread = 0; thread < 5; ++thread) {
    table.fill(pass.mean, pass.std, thread, 5);
  }
  for (int64_t image = 0; image < pass.images; ++image) {
    for (int64_t pixel = 0; pixel < pass.pixels; pixel += kWidth) {
      normalize_pixels<kWidth>(pass, table, image, pixel);
    }
  }
  CHECK(planes.equal(expected));
  CHECK(normalize_batch(images, of.mean, of.std, kType<T>).equal(expected));
}

template <int kWidth, class T>
void check_fields(int64_t rows, int64_t columns) {
  constexpr int64_t kSamples = 2, kChannels = 4;
  const Statistics of(kChannels);
  const at::Tensor fields = normals({kSamples, kChannels, rows, columns}, 3, at::kFloat);
  const at::Tensor expected = by_operations(fields, of, kType<T>), normalized = unwritten(expected, kType<T>);
  const FieldPass<T> pass{fields.const_data_ptr<float>(),
                          of.mean.const_data_ptr<float>(),
                          of.std.const_data_ptr<float>(),
                          normalized.data_ptr<T>(),
                          kSamples * kChannels,
                          rows * columns,
                          kChannels};
  for (int64_t plane = 0; plane < pass.planes; ++plane) {
    const int64_t channel = plane % kChannels;
    for (int64_t place = 0; place < pass.plane; place += kWidth) {
      normalize_values<kWidth>(pass, plane, place, pass.mean[channel], pass.std[channel]);
    }
  }
  CHECK(normalized.equal(expected));
  CHECK(normalize_batch(fields, of.mean, of.std, kType<T>).equal(expected));
}

template <class T>
void check_type() {
  constexpr int kWidth = kernels::kVectorWidth<T>;
  CAPTURE(c10::toString(kType<T>));
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 8}, {3, 8}, {16, 40}}) {
    check_images<kWidth, T>(rows, columns);
    check_fields<kWidth, T>(rows, columns);
  }
  check_images<1, T>(13, 21);
  check_fields<1, T>(5, 7);
}

}  // namespace

TEST_CASE("normalization: threads of a GPU and loops of the host give the bits of ATen's operations one by one") {
  check_type<float>();
  check_type<double>();
  check_type<c10::BFloat16>();
  check_type<c10::Half>();
}
