// What the threads of the optimizer's and the input's device kernels do, run on the host for every thread of a grid:
// each element once, whatever the size and alignment, and numbers against references in double.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "data/loading/normalize.h"
#include "parallel/zero/rules/device_update_cuda.h"
#include "parallel/zero/rules/step_arithmetic.h"
#include "parallel/zero/sharding.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "src/kernels/element_vector.h"
#include "tests/support/compare.h"
#include "tests/support/optimizer_step.h"

using namespace vit_hybrid;
using namespace vit_hybrid::kernels;
using namespace vit_hybrid::zero;

namespace {

// Calls `work(share)` for each thread of a grid that is large enough for `items`.
template <class Work>
void for_grid(int64_t items, int threads, int per_thread, const Work& work) {
  const int64_t blocks = num_blocks_for(items, int64_t{threads} * per_thread);
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
        for_grid(split.num_items(), 8, 3, [&](const ThreadShare& share) {
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
  const std::vector<Segment> segments = {{0, 4, 10}, {1, 3, 11}, {5, 4, 12}, {6, 9, 13}, {30, 8, 14}, {31, 7, 15}};
  const SegmentTable table{segments.data(), 6};
  for (const int64_t stride : {1, 2, 7, 29, 64}) {
    for (int64_t first = 0; first < stride; ++first) {
      TableCursor cursor(table);
      double before = -1.0;
      for (int64_t element = first; element < 100; element += stride) {
        size_t segment = 0;
        while (segment + 1 < segments.size() && segments[segment + 1].begin <= element)
          ++segment;
        CHECK(cursor.move_to(element) == (before != segments[segment].weight_decay));
        CHECK(cursor.entry().shift == segments[segment].shift);
        CHECK(cursor.entry().weight_decay == segments[segment].weight_decay);
        before = cursor.entry().weight_decay;
      }
    }
  }
  const Segment one{0, 0, 2.5};
  TableCursor<Segment> cursor({&one, 1});
  cursor.move_to(int64_t{1} << 50);
  CHECK(cursor.entry().weight_decay == 2.5);
}

TEST_CASE("device arithmetic: segments that vectors would not fit are refused") {
  const at::Tensor two = segment_tensor({{0, 8, 0.0}, {12, 4, 0.1}}, at::kCPU);
  CHECK(table_in<Segment>(two).entries[1].begin == 12);
  CHECK_THROWS_AS(table_in<CountedRange>(two), Error);
  CHECK(table_in<Segment>(segment_tensor({}, at::kCPU)).count == 0);
  for (const std::vector<Segment>& wrong : std::vector<std::vector<Segment>>{
           {{4, 0, 0.0}}, {{0, 2, 0.0}}, {{0, 0, 0.0}, {6, 0, 0.1}}, {{0, 0, 0.0}, {8, 0, 0.1}, {8, 0, 0.0}}}) {
    CHECK_THROWS_AS(segment_tensor(wrong, at::kCPU), Error);
  }
}

namespace {

// What a rank may own of three buckets: segments of the state, and where they lie in flat buffers of 3 `count`.
std::vector<Segment> some_segments(int64_t count) {
  std::vector<Segment> segments = {{0, 8, 0.0}};
  for (const int64_t begin : {count / 3, count / 2, count / 4 * 3}) {
    const int64_t aligned = begin / kSegmentAlignment * kSegmentAlignment;
    if (aligned > segments.back().begin) {
      const auto index = static_cast<int64_t>(segments.size());
      segments.push_back({aligned, 8 + index / 2 * count, index % 2 == 0 ? 0.0 : 0.1});
    }
  }
  return segments;
}

// Two steps over a state of `count` elements, and a skipped one between them, against the update in double.
template <class Master, class Gradient, class Parameter>
void check_adam(int64_t count, OptimizerKind kind, double bound) {
  CAPTURE(count);
  constexpr bool kOwnMaster = !std::is_same_v<Master, Parameter>;
  const bool decoupled = kind == OptimizerKind::kAdamW;
  const std::vector<Segment> segments = some_segments(count);
  const SegmentTable table{segments.data(), static_cast<int64_t>(segments.size())};
  OptimizerOptions options;
  options.kind = kind;
  const int64_t flat_size = 3 * count;
  const Parameter untouched(-7);
  Shifted<Master> master(count, 0), exp_avg(count, 0), exp_avg_sq(count, 0);
  Shifted<Gradient> gradients(flat_size, 0);
  Shifted<Parameter> parameters(flat_size, 0);
  std::vector<double> w(static_cast<size_t>(count)), m(w), v(w), decays(w);
  std::vector<int64_t> flat(w.size());
  std::vector<bool> owned(static_cast<size_t>(flat_size), false);
  for (int64_t i = 0; i < flat_size; ++i) {
    parameters[i] = untouched;
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    size_t segment = 0;
    while (segment + 1 < segments.size() && segments[segment + 1].begin <= i)
      ++segment;
    decays[k] = segments[segment].weight_decay;
    flat[k] = i + segments[segment].shift;
    owned.at(static_cast<size_t>(flat[k])) = true;
    master[i] = static_cast<Master>(normal(i, 1));
    exp_avg[i] = exp_avg_sq[i] = Master(0);
    parameters[flat[k]] = static_cast<Parameter>(master[i]);
    w[k] = static_cast<double>(master[i]);
  }
  const AdamArrays<Master, Gradient, Parameter> arrays{kOwnMaster ? master.data() : nullptr, exp_avg.data(),
                                                       exp_avg_sq.data(), gradients.data(), parameters.data()};
  constexpr int kSkipped = 0;
  for (const int number : {1, kSkipped, 2}) {
    StepScalars step = testing::scalars_of(options, number == kSkipped ? 2 : number, 0.01, 0.25);
    step.skip = number == kSkipped ? 1.0 : 0.0;
    for (int64_t i = 0; i < flat_size; ++i) {
      gradients[i] = static_cast<Gradient>(normal(i, 1 + static_cast<uint64_t>(number)));
    }
    const int64_t vectors = count / kAdamWidth<Master>;
    for_grid(vectors, 4, 2, [&](const ThreadShare& share) {
      adam_share(arrays, vectors, share, adam_constants<Master>(options), step, table);
    });
    for (size_t k = 0; k < w.size() && number != kSkipped; ++k) {
      const double gradient = 0.25 * static_cast<double>(gradients[flat[k]]) + (decoupled ? 0.0 : decays[k] * w[k]);
      m[k] = 0.9 * m[k] + 0.1 * gradient;
      v[k] = 0.95 * v[k] + 0.05 * gradient * gradient;
      const double root = std::sqrt(v[k] / (1.0 - std::pow(0.95, number))) + 1e-8;
      w[k] -= (decoupled ? 0.01 * decays[k] * w[k] : 0.0) + 0.01 * m[k] / (1.0 - std::pow(0.9, number)) / root;
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    const Parameter parameter = parameters[flat[k]];
    const double weight = kOwnMaster ? static_cast<double>(master[i]) : static_cast<double>(parameter);
    CHECK(std::abs(weight - w[k]) <= bound);
    CHECK(std::abs(static_cast<double>(exp_avg[i]) - m[k]) <= bound);
    CHECK(std::abs(static_cast<double>(exp_avg_sq[i]) - v[k]) <= bound);
    if (kOwnMaster) {
      CHECK(static_cast<double>(parameter) == static_cast<double>(static_cast<Parameter>(master[i])));
    }
  }
  for (int64_t i = 0; i < flat_size; ++i) {
    CHECK((owned[static_cast<size_t>(i)] || parameters[i] == untouched));
  }
}

}  // namespace

TEST_CASE("device arithmetic: Adam's pass scales, decays, updates and casts each element once, wherever it lies") {
  for (const int64_t count : {4, 12, 64, 100, 1000}) {
    for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
      check_adam<double, double, double>(count, kind, 1e-13);
      check_adam<float, float, float>(count, kind, 2e-6);
      check_adam<float, float, c10::BFloat16>(count, kind, 2e-6);
      check_adam<float, c10::Half, c10::Half>(count, kind, 2e-6);
    }
  }
}

namespace {

// Of an array in which everything outside of the ranges is not finite.
template <class T>
void check_squares(const std::vector<Range>& ranges) {
  const int64_t size = ranges.back().end;
  Shifted<T> values(size, 0);
  for (int64_t i = 0; i < size; ++i) {
    values[i] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  }
  double sum = 0.0, not_finite = 0.0;
  for (const Range& range : ranges) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      if (i % 37 == 5) {
        ++not_finite;
        continue;
      }
      values[i] =
          static_cast<T>(i % 31 == 3 ? std::numeric_limits<float>::infinity() : static_cast<float>(normal(i, 9)));
      const auto value = static_cast<double>(values[i]);
      (std::isfinite(value) ? sum : not_finite) += std::isfinite(value) ? value * value : 1.0;
    }
  }
  const auto table = counted_ranges(ranges, kVectorWidth<T>);
  const SummedRanges summed{{table.data(), static_cast<int64_t>(table.size())}, table.back()};
  SquareCount total;
  for_grid(table.back().next_begin(kVectorWidth<T>), 4, 3, [&](const ThreadShare& share) {
    const SquareCount part = square_share(values.data(), summed, share);
    total.sum += part.sum;
    total.not_finite += part.not_finite;
  });
  CHECK(std::abs(total.sum - sum) <= 1e-13 * sum);
  CHECK(total.not_finite == not_finite);
}

}  // namespace

TEST_CASE("device arithmetic: sums of squares count the finite values of ranges, and those that are not") {
  for (const std::vector<Range>& ranges : std::vector<std::vector<Range>>{
           {{0, 11}},
           {{1, 257}},
           {{0, 1001}},
           {{3, 4}, {4, 4}, {4, 9}, {15, 17}, {32, 32}, {48, 160}, {161, 230}, {240, 1001}}}) {
    check_squares<float>(ranges);
    check_squares<double>(ranges);
    check_squares<c10::BFloat16>(ranges);
    check_squares<c10::Half>(ranges);
  }
}

TEST_CASE("device arithmetic: the vectors of ranges are numbered one range after the other, without empty ones") {
  const auto table = counted_ranges(std::vector<Range>{{2, 2}, {3, 5}, {5, 12}, {20, 20}, {40, 41}}, 4);
  REQUIRE(table.size() == 3);
  CHECK(table[0].begin == 0);  // vectors 0 and 1 of the array
  CHECK(table[0].shift == 0);
  CHECK(table[1].begin == 2);  // 1 and 2
  CHECK(table[1].shift == -1);
  CHECK(table[2].begin == 4);  // 10
  CHECK(table[2].shift == 6);
  CHECK(table[2].next_begin(4) == 5);
  CHECK(CountedRange{}.next_begin(4) == 0);
  CHECK(counted_ranges(std::vector<Range>{{7, 7}}, 4).empty());
}

TEST_CASE("normalization: batches of fields and of images are normalized by channel, in any type") {
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
