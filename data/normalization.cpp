// Statistics from .npy files, and the loop over a field.
#include "data/normalization.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "data/npy.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

std::vector<double> read_statistic(const std::string& path, int64_t channels) {
  const at::Tensor values = read_npy(path).to(at::kDouble);
  const std::vector<int64_t> shape = values.sizes().vec();
  if (shape != std::vector<int64_t>{1, channels, 1, 1} && shape != std::vector<int64_t>{channels}) {
    throw Error(ErrorClass::kBadData, str(path, " has the shape (", join(shape), "), needed is (1, ", channels,
                                          ", 1, 1) or (", channels, "): the data have ", channels, " channels"));
  }
  const auto* first = values.const_data_ptr<double>();
  return {first, first + channels};
}

// As float32, in which most fields are normalized: a deviation that rounds to 0 there would make every value infinite.
void check(const std::string& path, const std::vector<double>& values, float above, const char* allowed) {
  for (size_t c = 0; c < values.size(); ++c) {
    const auto value = static_cast<float>(values[c]);
    if (!std::isfinite(value) || !(value > above)) {
      throw Error(ErrorClass::kBadData, str(path, " holds ", values[c], " for channel ", c), allowed);
    }
  }
}

// One channel: true if all normalized values are finite. Written so that it is compiled to vector instructions.
template <class T>
bool normalize_plane(const T* from, float* to, int64_t count, T mean, T deviation) {
  uint32_t non_finite = 0;
#pragma omp simd reduction(| : non_finite)
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>((from[i] - mean) / deviation);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    non_finite |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
    to[i] = value;
  }
  return non_finite == 0;
}

template <class T>
int64_t normalize(const at::Tensor& field, const Normalization& normalization, const at::Tensor& to) {
  const int64_t channels = field.size(0);
  const int64_t count = channels == 0 ? 0 : field.numel() / channels;
  const T* from = field.const_data_ptr<T>();
  float* out = to.data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) {
    float* plane = out + c * count;
    const auto mean = static_cast<T>(normalization.mean[static_cast<size_t>(c)]);
    const auto deviation = static_cast<T>(normalization.std[static_cast<size_t>(c)]);
    if (!normalize_plane(from + c * count, plane, count, mean, deviation)) {
      const auto* bad = std::find_if(plane, plane + count, [](float value) { return !std::isfinite(value); });
      return bad - out;
    }
  }
  return -1;
}

}  // namespace

Normalization Normalization::identity(int64_t channels) {
  const auto num = static_cast<size_t>(channels);
  return {std::vector<double>(num, 0.0), std::vector<double>(num, 1.0)};
}

Normalization Normalization::read(const comm::MpiGroup& group, const std::string& means, const std::string& stds,
                                  int64_t channels) {
  Normalization result = identity(channels);
  comm::agreed_on_rank_0(group, [&] {
    result = {read_statistic(means, channels), read_statistic(stds, channels)};
    check(means, result.mean, -std::numeric_limits<float>::infinity(), "a mean is finite");
    check(stds, result.std, 0.0f, "a standard deviation is finite and above 0");
  });
  const auto bytes = static_cast<int64_t>(sizeof(double)) * channels;
  group.broadcast(result.mean.data(), bytes, 0);
  group.broadcast(result.std.data(), bytes, 0);
  return result;
}

int64_t normalize_field(const at::Tensor& field, const Normalization& normalization, const at::Tensor& to) {
  VH_ASSERT(
      field.is_contiguous() && to.is_contiguous() && field.sizes() == to.sizes() && to.scalar_type() == at::kFloat,
      "field and its normalized values");
  VH_ASSERT(static_cast<int64_t>(normalization.mean.size()) == field.size(0), "one mean for each channel");
  return field.scalar_type() == at::kDouble ? normalize<double>(field, normalization, to)
                                            : normalize<float>(field, normalization, to);
}

}  // namespace vit_hybrid::data
