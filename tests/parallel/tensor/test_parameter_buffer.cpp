// The flat layout: reverse order, alignment, buckets and shards; and the buffer's views.
#include <ATen/core/Tensor.h>
#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "parallel/tensor/parameter_buffer.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
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
