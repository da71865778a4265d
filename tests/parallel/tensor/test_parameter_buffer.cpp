// The flat layout: reverse order, alignment, buckets and shards; the buffer's views; initial weights of any slicing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <string>

#include "parallel/tensor/parameter_buffer.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/partition.h"
#include "src/base/random.h"

using namespace vit_hybrid;
using namespace vit_hybrid::tensor;

namespace {

std::vector<ParameterSpec> specs_of_sizes(const std::vector<int64_t>& sizes) {
  std::vector<ParameterSpec> specs;
  for (size_t i = 0; i < sizes.size(); ++i) {
    specs.push_back(replicated("p" + std::to_string(i), {sizes[i]}, Distribution{}, DecayGroup::kMatrix));
  }
  return specs;
}

void check_layout(const FlatLayout& layout, const std::vector<int64_t>& sizes, int64_t bucket_elements, int shards) {
  int64_t position = 0;
  int next = static_cast<int>(sizes.size()) - 1;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    const auto& bucket = layout.buckets[b];
    CHECK(bucket.range.begin == position);
    CHECK(bucket.range.size() > 0);
    CHECK_FALSE(bucket.members.empty());
    int64_t used = bucket.range.begin;
    for (const int member : bucket.members) {
      CHECK(member == next--);
      const Range slot = layout.slots[static_cast<size_t>(member)];
      CHECK(slot.size() == sizes[static_cast<size_t>(member)]);
      CHECK(slot.begin % 16 == 0);
      CHECK(slot.begin >= used);
      CHECK(slot.begin - used < 16);
      // A bucket is closed as soon as it is full.
      CHECK(slot.begin - bucket.range.begin < bucket_elements);
      used = slot.end;
    }
    CHECK(used <= bucket.range.end);
    CHECK(bucket.range.end - used < 16 * (shards + 1));
    int64_t shard_begin = bucket.range.begin;
    for (int shard = 0; shard < shards; ++shard) {
      const Range part = layout.shard_of(static_cast<int>(b), shard);
      CHECK(part.begin == shard_begin);
      CHECK(part.size() * shards == bucket.range.size());
      CHECK(part.begin % 16 == 0);
      shard_begin = part.end;
    }
    CHECK(shard_begin == bucket.range.end);
    position = bucket.range.end;
  }
  CHECK(position == layout.size);
  CHECK(next == -1);
}

}  // namespace

TEST_CASE("flat_layout: random sizes, buckets and shards") {
  const RandomStream random(5, Purpose::kTest);
  uint64_t draw = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<int64_t> sizes(1 + random.below(12, draw++));
    for (int64_t& size : sizes) {
      size = static_cast<int64_t>(random.below(200, draw++));
    }
    const auto bucket_elements = 1 + static_cast<int64_t>(random.below(400, draw++));
    const auto shards = 1 + static_cast<int>(random.below(7, draw++));
    check_layout(make_flat_layout(specs_of_sizes(sizes), bucket_elements, shards), sizes, bucket_elements, shards);
  }
}

TEST_CASE("flat_layout: a rank without parameters, and one whose slices are all empty") {
  const FlatLayout none = make_flat_layout({}, 100, 3);
  CHECK(none.size == 0);
  CHECK(none.buckets.empty());
  const FlatLayout empty = make_flat_layout(specs_of_sizes({0, 0}), 100, 3);
  CHECK(empty.size == 48);
  CHECK(empty.buckets.size() == 1);
}

TEST_CASE("parameter_buffer: views lie in the flat buffers and have the local shape") {
  std::vector<ParameterSpec> specs = {replicated("a", {2, 3}, Distribution{}, DecayGroup::kMatrix),
                                      sharded("b", {6, 4}, 1, 1, 3, 1, Distribution{}, DecayGroup::kMatrix)};
  ParameterBuffer buffer(specs, make_flat_layout(specs, 1000, 2), at::kFloat, at::kDouble, at::kCPU);
  CHECK(bool(buffer.values().scalar_type() == at::kFloat));
  CHECK(bool(buffer.gradients().scalar_type() == at::kDouble));
  const Parameter& b = buffer.parameter("b");
  CHECK(b.index == 1);
  CHECK(b.value.sizes() == at::IntArrayRef({6, 2}));
  CHECK_FALSE(b.value.requires_grad());
  b.value.fill_(1.0);
  b.gradient.fill_(2.0);
  CHECK(buffer.values().sum().item<double>() == 12.0);
  CHECK(buffer.gradients().sum().item<double>() == 24.0);
  CHECK(buffer.values()[buffer.layout().slots[1].begin].item<double>() == 1.0);
  CHECK(buffer.values()[buffer.layout().slots[1].end].item<double>() == 0.0);
  CHECK(buffer.parameter(0).value.sum().item<double>() == 0.0);
  CHECK_THROWS_AS(buffer.parameter("c"), Error);
}

TEST_CASE("parameter_buffer: one without gradients allocates the values alone") {
  const std::vector<ParameterSpec> specs = {replicated("a", {2, 3}, Distribution{}, DecayGroup::kMatrix)};
  const MemoryTracker::Attachment attachment;
  MemoryTracker::reset_peaks();
  const int64_t before = MemoryTracker::report().total_current;
  const ParameterBuffer buffer(specs, make_flat_layout(specs, 1, 1), at::kDouble, std::nullopt, at::kCPU);
  CHECK_FALSE(buffer.has_gradients());
  CHECK_FALSE(buffer.parameter("a").gradient.defined());
  CHECK(buffer.parameter("a").value.sizes() == at::IntArrayRef({2, 3}));
  CHECK(MemoryTracker::report().total_peak - before == buffer.layout().size * 8);
}

TEST_CASE("parameter_buffer: the version rises") {
  ParameterBuffer buffer({}, make_flat_layout({}, 1, 1), at::kFloat, at::kFloat, at::kCPU);
  const int64_t before = buffer.version();
  buffer.bump_version();
  CHECK(buffer.version() > before);
}

TEST_CASE("parameter_buffer: two parameters of one name are a broken invariant") {
  auto specs = specs_of_sizes({1, 2});
  specs[1].name = specs[0].name;
  CHECK_THROWS_AS(ParameterBuffer(specs, make_flat_layout(specs, 1, 1), at::kFloat, at::kFloat, at::kCPU), Error);
}

namespace {

constexpr uint64_t kSeed = 20240229;
const Distribution kNormal{Distribution::Kind::kTruncatedNormal, 0.02, 2.0};
const Distribution kUniform{Distribution::Kind::kUniform, 0.25, 0.0};

at::Tensor box_of(at::Tensor tensor, const Shape& offset, const Shape& size) {
  for (size_t dim = 0; dim < size.size(); ++dim) {
    tensor = tensor.narrow(static_cast<int64_t>(dim), offset[dim], size[dim]);
  }
  return tensor;
}

// The global tensor from the slices of `ranks` ranks.
at::Tensor assemble(const Shape& shape, int dim, int groups, int64_t ranks, const Distribution& initial) {
  at::Tensor global = at::full(shape, -1000.0, at::kDouble);
  const Partition rows(shape[static_cast<size_t>(dim)] / groups, ranks);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Range part = rows.part(rank);
    const ParameterSpec spec = sharded("w", shape, dim, part.begin, part.end, groups, initial, DecayGroup::kMatrix);
    const at::Tensor local = initial_values(spec, kSeed);
    for (const BoxMapping& box : spec.boxes) {
      box_of(global, box.global_offset, box.size).copy_(box_of(local, box.local_offset, box.size));
    }
  }
  return global;
}

}  // namespace

TEST_CASE("initialize: any slicing gives the same global tensor") {
  const Shape shape{24, 7, 18};
  for (const Distribution& initial : {kNormal, kUniform}) {
    const at::Tensor whole = initial_values(replicated("w", shape, initial, DecayGroup::kMatrix), kSeed);
    for (const int dim : {0, 1, 2}) {
      for (const int groups : {1, 3}) {
        if (shape[static_cast<size_t>(dim)] % groups != 0) {
          continue;
        }
        for (const int64_t ranks : {1, 2, 3, 5}) {
          CHECK(assemble(shape, dim, groups, ranks, initial).equal(whole));
        }
      }
    }
  }
}

TEST_CASE("initialize: element i is draw i of the stream of its name") {
  const at::Tensor normal = initial_values(replicated("blocks.3.w", {5, 8}, kNormal, DecayGroup::kMatrix), kSeed);
  const at::Tensor uniform = initial_values(replicated("blocks.3.w", {5, 8}, kUniform, DecayGroup::kMatrix), kSeed);
  const RandomStream stream(kSeed, Purpose::kInitialWeights, name_key("blocks.3.w"));
  for (uint64_t i = 0; i < 40; ++i) {
    CHECK(normal.data_ptr<double>()[i] == 0.02 * stream.normal(i));
    CHECK(uniform.data_ptr<double>()[i] == 0.25 * (2.0 * stream.uniform(i) - 1.0));
  }
}

TEST_CASE("initialize: another name or seed gives other values") {
  const auto values = [](const char* name, uint64_t seed) {
    return initial_values(replicated(name, {64}, kNormal, DecayGroup::kMatrix), seed);
  };
  CHECK_FALSE(values("a", 1).equal(values("b", 1)));
  CHECK_FALSE(values("a", 1).equal(values("a", 2)));
  CHECK(values("a", 1).equal(values("a", 1)));
}

TEST_CASE("initialize: moments of the distributions") {
  constexpr int64_t kCount = 200'000;
  const auto values = [](const Distribution& initial) {
    return initial_values(replicated("w", {kCount}, initial, DecayGroup::kMatrix), kSeed);
  };
  const double root = std::sqrt(static_cast<double>(kCount));
  SUBCASE("normal") {
    const at::Tensor x = values(kNormal).div(0.02);
    // Five standard deviations of each mean: of x, x^2 (variance 2) and x^4 (variance 105 - 9).
    CHECK(std::fabs(x.mean().item<double>()) < 5 / root);
    CHECK(std::fabs(x.square().mean().item<double>() - 1.0) < 5 * std::sqrt(2.0) / root);
    CHECK(std::fabs(x.pow(4).mean().item<double>() - 3.0) < 5 * std::sqrt(96.0) / root);
  }
  SUBCASE("uniform") {
    const at::Tensor x = values(kUniform).div(0.25);
    CHECK(x.abs().max().item<double>() < 1.0);
    CHECK(x.abs().max().item<double>() > 0.999);
    CHECK(std::fabs(x.mean().item<double>()) < 5 * std::sqrt(1.0 / 3) / root);
    CHECK(std::fabs(x.square().mean().item<double>() - 1.0 / 3) < 5 * std::sqrt(4.0 / 45) / root);
  }
  SUBCASE("a normal truncated where it matters") {
    const at::Tensor x = values({Distribution::Kind::kTruncatedNormal, 1.0, 1.0});
    CHECK(x.abs().max().item<double>() <= 1.0);
    CHECK(x.abs().max().item<double>() > 0.999);
    // Variance of a standard normal truncated at +-1: 1 - 2 phi(1) / (2 Phi(1) - 1).
    const double phi = std::exp(-0.5) / std::sqrt(2 * 3.14159265358979323846);
    const double variance = 1.0 - 2 * phi / std::erf(1.0 / std::sqrt(2.0));
    CHECK(std::fabs(x.mean().item<double>()) < 5 * std::sqrt(variance) / root);
    CHECK(std::fabs(x.square().mean().item<double>() - variance) < 5 * 0.3 / root);
  }
  SUBCASE("constant") {
    CHECK(values({Distribution::Kind::kConstant, 1.0, 0.0}).eq(1.0).all().item<bool>());
  }
}

TEST_CASE("initialize: the buffer gets the values cast to its type, and gaps stay zero") {
  std::vector<ParameterSpec> specs = {
      replicated("a", {3, 5}, kNormal, DecayGroup::kMatrix),
      replicated("ones", {7}, {Distribution::Kind::kConstant, 1.0, 0.0}, DecayGroup::kVector),
      sharded("b", {12, 5}, 0, 1, 3, 3, kUniform, DecayGroup::kMatrix)};
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    ParameterBuffer buffer(specs, make_flat_layout(specs, 40, 3), type, type, at::kCPU);
    const int64_t version = buffer.version();
    initialize(buffer.specs(), buffer, kSeed);
    CHECK(buffer.version() > version);
    at::Tensor rest = buffer.values().clone();
    for (size_t i = 0; i < specs.size(); ++i) {
      const Range slot = buffer.layout().slots[i];
      CHECK(buffer.parameter(static_cast<int>(i)).value.equal(initial_values(specs[i], kSeed).to(type)));
      rest.narrow(0, slot.begin, slot.size()).zero_();
    }
    CHECK(rest.eq(0).all().item<bool>());
  }
}

TEST_CASE("initialize: a truncation that would hardly ever accept a draw is a broken invariant") {
  const ParameterSpec spec =
      replicated("w", {4}, {Distribution::Kind::kTruncatedNormal, 1.0, 1e-6}, DecayGroup::kMatrix);
  CHECK_THROWS_AS(initial_values(spec, kSeed), Error);
}
