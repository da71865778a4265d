// What the threads of the optimizer's and the input's device kernels do, run on the host for every thread of a grid:
// each element once, whatever the size and alignment, and numbers against references in double.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "data/normalize_batch.h"
#include "parallel/zero/flat_passes.h"
#include "src/base/random.h"
#include "src/base/vector_split.h"
#include "tests/support/compare.h"

using namespace vit_hybrid;
using namespace vit_hybrid::zero;

namespace {

// Calls `work(share)` for each thread of a grid that is large enough for the split.
template <class Work>
void for_grid(const VectorSplit& split, int threads, int per_thread, const Work& work) {
  const int64_t blocks = num_blocks_for(split.num_items(), int64_t{threads} * per_thread);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int thread = 0; thread < threads; ++thread) {
      work(ThreadShare::of(block, thread, threads, per_thread));
    }
  }
}

// An array that begins `offset` elements after an aligned address.
template <class T>
class Shifted {
 public:
  Shifted(int64_t count, int64_t offset) : values_(static_cast<size_t>(count + offset) * sizeof(T) / 16 + 2) {
    data_ = reinterpret_cast<T*>(values_.data()) + offset;
  }
  T* data() { return data_; }
  T& operator[](int64_t i) { return data_[i]; }

 private:
  struct alignas(16) Line {
    unsigned char bytes[16];
  };
  std::vector<Line> values_;
  T* data_;
};

double normal(int64_t i, uint64_t key) {
  return RandomStream(7, Purpose::kTest, key).normal(static_cast<uint64_t>(i));
}

}  // namespace

TEST_CASE("device arithmetic: the threads of a grid take each element once, vectors where all arrays are aligned") {
  for (const int64_t count : {0, 1, 3, 4, 15, 16, 17, 1000, 1023}) {
    for (const int64_t offset : {0, 1, 3}) {
      for (const int64_t other : {0, 1}) {
        CAPTURE(count);
        CAPTURE(offset);
        Shifted<float> a(count, offset);
        Shifted<c10::Half> b(count, offset + other);
        const VectorSplit split = make_vector_split(count, 4, {{a.data(), 4}, {b.data(), 2}, {nullptr, 8}});
        CHECK((split.vectors == 0 || other == 0));  // together never aligned
        CHECK((split.vectors > 0 || other == 1 || count < 7));
        std::vector<int> visits(static_cast<size_t>(count), 0);
        for_grid(split, 8, 3, [&](const ThreadShare& share) {
          for (int64_t i = share.first; i < share.end_among(split.vectors); i += share.stride) {
            CHECK(reinterpret_cast<uintptr_t>(a.data() + split.vector(i)) % 16 == 0);
            CHECK(reinterpret_cast<uintptr_t>(b.data() + split.vector(i)) % 8 == 0);
            for (int64_t k = 0; k < 4; ++k)
              ++visits.at(static_cast<size_t>(split.vector(i) + k));
          }
          for (int64_t i = share.first; i < share.end_among(split.num_singles()); i += share.stride) {
            ++visits.at(static_cast<size_t>(split.single(i)));
          }
        });
        CHECK(visits == std::vector<int>(static_cast<size_t>(count), 1));
      }
    }
  }
}

TEST_CASE("device arithmetic: a cursor finds the segment of each element, also when it jumps") {
  const std::vector<int64_t> bounds = {0, 1, 5, 6, 30, 31, 100};
  const std::vector<double> values = {10, 11, 12, 13, 14, 15};
  const SegmentTable table{-1.0, bounds.data(), values.data(), 6};
  for (const int64_t stride : {1, 2, 7, 29, 64}) {
    for (int64_t first = 0; first < stride; ++first) {
      SegmentCursor cursor(table);
      double before = -1.0;
      for (int64_t element = first; element < 100; element += stride) {
        size_t segment = 0;
        while (bounds[segment + 1] <= element)
          ++segment;
        CHECK(cursor.move_to(element) == (before != values[segment]));
        CHECK(cursor.value() == values[segment]);
        before = cursor.value();
      }
    }
  }
  SegmentCursor one({2.5, nullptr, nullptr, 1});
  one.move_to(int64_t{1} << 50);
  CHECK(one.value() == 2.5);
}

namespace {

// Two steps over `count` elements that lie `offset` behind an aligned address, against the update in double.
template <class Master, class Gradient, class Parameter>
void check_adam(int64_t count, int64_t offset, bool decoupled, double bound) {
  CAPTURE(count);
  CAPTURE(offset);
  const AdamConstants constants{0.9, 0.95, 1e-8, decoupled};
  std::vector<int64_t> bounds = {0, count / 3, count};
  const std::vector<double> decays = {0.0, 0.1};
  const SegmentTable table{0.0, bounds.data(), decays.data(), 2};
  Shifted<Master> weights(count, offset), exp_avg(count, offset), exp_avg_sq(count, offset);
  Shifted<Gradient> gradients(count, offset);
  Shifted<Parameter> parameters(count, offset);
  std::vector<double> w(static_cast<size_t>(count)), m(w), v(w);
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = static_cast<Master>(normal(i, 1));
    exp_avg[i] = exp_avg_sq[i] = Master(0);
    w[static_cast<size_t>(i)] = static_cast<double>(weights[i]);
  }
  const AdamArrays<Master, Gradient, Parameter> arrays{weights.data(), exp_avg.data(), exp_avg_sq.data(),
                                                       gradients.data(), parameters.data()};
  double step[kNumStepSlots] = {0.0, 0.01, 0.25, 0.0, 0.0, 0.0};
  for (int number = 1; number <= 2; ++number) {
    count_adam_step(step, constants);
    CHECK(step[kStepNumber] == number);
    StepNumbers numbers;
    numbers.on_device = step;
    for (int64_t i = 0; i < count; ++i) {
      gradients[i] = static_cast<Gradient>(normal(i, 1 + static_cast<uint64_t>(number)));
    }
    const VectorSplit split = make_vector_split(count, kAdamWidth<Master>,
                                                {{weights.data(), sizeof(Master)},
                                                 {gradients.data(), sizeof(Gradient)},
                                                 {parameters.data(), sizeof(Parameter)}});
    for_grid(split, 4, 2,
             [&](const ThreadShare& share) { adam_share(arrays, split, share, numbers, constants, table); });
    for (int64_t i = 0; i < count; ++i) {
      const auto k = static_cast<size_t>(i);
      const double decay = i < count / 3 ? 0.0 : 0.1;
      const double gradient = 0.25 * static_cast<double>(gradients[i]) + (decoupled ? 0.0 : decay * w[k]);
      m[k] = 0.9 * m[k] + 0.1 * gradient;
      v[k] = 0.95 * v[k] + 0.05 * gradient * gradient;
      const double root = std::sqrt(v[k] / (1.0 - std::pow(0.95, number))) + 1e-8;
      w[k] -= (decoupled ? 0.01 * decay * w[k] : 0.0) + 0.01 * m[k] / (1.0 - std::pow(0.9, number)) / root;
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    CHECK(std::abs(static_cast<double>(weights[i]) - w[k]) <= bound);
    CHECK(std::abs(static_cast<double>(exp_avg[i]) - m[k]) <= bound);
    CHECK(std::abs(static_cast<double>(exp_avg_sq[i]) - v[k]) <= bound);
    CHECK(static_cast<double>(parameters[i]) == static_cast<double>(static_cast<Parameter>(weights[i])));
  }
}

}  // namespace

TEST_CASE("device arithmetic: Adam's pass scales, decays, updates and casts each element once") {
  for (const int64_t count : {1, 7, 64, 101}) {
    for (const int64_t offset : {0, 1}) {
      for (const bool decoupled : {false, true}) {
        check_adam<double, double, double>(count, offset, decoupled, 1e-13);
        check_adam<float, float, float>(count, offset, decoupled, 2e-6);
        check_adam<float, float, c10::BFloat16>(count, offset, decoupled, 2e-6);
        check_adam<float, c10::Half, c10::Half>(count, offset, decoupled, 2e-6);
      }
    }
  }
}

TEST_CASE("device arithmetic: a skipped step is not counted") {
  double step[kNumStepSlots] = {4.0, 0.01, 1.0, 1.0, 5.0, 6.0};
  count_adam_step(step, {0.9, 0.95, 1e-8, true});
  CHECK(step[kStepNumber] == 4.0);
  CHECK(step[kStepSize] == 5.0);
}

namespace {

template <class T>
void check_squares(int64_t count, int64_t offset) {
  Shifted<T> values(count, offset);
  const std::vector<int64_t> bounds = {0, count / 2, count / 2 + 5, count};
  const std::vector<double> counts = {1.0, 0.0, 1.0};
  double sum = 0.0, not_finite = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(normal(i, 9));
    if (i % 31 == 3) values[i] = static_cast<T>(std::numeric_limits<float>::infinity());
    if (i % 37 == 5) values[i] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    if (i < bounds[1] || i >= bounds[2]) {
      const auto value = static_cast<double>(values[i]);
      (std::isfinite(value) ? sum : not_finite) += std::isfinite(value) ? value * value : 1.0;
    }
  }
  const VectorSplit split = make_vector_split(count, kVectorWidth<T>, {{values.data(), sizeof(T)}});
  SquareCount total;
  for_grid(split, 4, 3, [&](const ThreadShare& share) {
    const SquareCount part = square_share(values.data(), split, share, {1.0, bounds.data(), counts.data(), 3});
    total.sum += part.sum;
    total.not_finite += part.not_finite;
  });
  CHECK(std::abs(total.sum - sum) <= 1e-13 * sum);
  CHECK(total.not_finite == not_finite);
}

}  // namespace

TEST_CASE("device arithmetic: sums of squares count the finite values, and those that are not") {
  for (const int64_t offset : {0, 1}) {
    for (const int64_t count : {11, 256, 1001}) {
      check_squares<float>(count, offset);
      check_squares<double>(count, offset);
      check_squares<c10::BFloat16>(count, offset);
      check_squares<c10::Half>(count, offset);
    }
  }
}

TEST_CASE("device arithmetic: batches of fields and of images are normalized by channel, in any type") {
  const at::Tensor mean = at::empty({3}, at::kFloat), std = at::empty({3}, at::kFloat);
  for (int64_t c = 0; c < 3; ++c) {
    mean.data_ptr<float>()[c] = 0.3f + 0.1f * static_cast<float>(c);
    std.data_ptr<float>()[c] = 0.2f + 0.05f * static_cast<float>(c);
  }
  const auto by_channel = [](const at::Tensor& x) { return x.to(at::kDouble).view({1, 3, 1, 1}); };
  for (const int64_t width : {5, 8}) {
    const at::Tensor fields = at::empty({2, 3, 4, width}, at::kFloat);
    const at::Tensor images = at::empty({2, 4, width, 3}, at::kByte);
    for (int64_t i = 0; i < fields.numel(); ++i) {
      fields.data_ptr<float>()[i] = static_cast<float>(normal(i, 3));
      images.data_ptr<uint8_t>()[i] = static_cast<uint8_t>(i * 37 % 256);
    }
    const at::Tensor of_fields = (fields.to(at::kDouble) - by_channel(mean)) / by_channel(std);
    const at::Tensor of_images =
        (images.permute({0, 3, 1, 2}).to(at::kDouble) / 255.0 - by_channel(mean)) / by_channel(std);
    for (const auto& [type, bound] : {std::pair(at::kFloat, 1e-6), std::pair(at::kDouble, 1e-6),
                                      std::pair(at::kBFloat16, 4e-3), std::pair(at::kHalf, 6e-4)}) {
      CHECK(testing::relative_error(data::normalize_batch(fields, mean, std, type), of_fields) <= bound);
      CHECK(testing::relative_error(data::normalize_batch(images, mean, std, type), of_images) <= bound);
    }
  }
}
