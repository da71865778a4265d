// Flat ranges of slices as boxes of the global tensor, against element by element.
#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "src/checkpoint/slice_reader.h"

using namespace vit_hybrid;
using namespace vit_hybrid::tensor;
using train::boxes_of_range;

namespace {

int64_t flat_index(const Shape& shape, const Shape& position) {
  int64_t index = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    index = index * shape[d] + position[d];
  }
  return index;
}

// Calls `visit(local position, global position)` for each element of a box.
template <class Visit>
void for_each_element(const BoxMapping& box, Visit&& visit) {
  Shape step(box.size.size(), 0);
  for (int64_t i = 0; i < num_elements(box.size); ++i) {
    int64_t rest = i;
    Shape local = box.local_offset;
    Shape global = box.global_offset;
    for (size_t d = box.size.size(); d-- > 0;) {
      local[d] += rest % box.size[d];
      global[d] += rest % box.size[d];
      rest /= box.size[d];
    }
    visit(local, global);
  }
}

// Global index of each local element, from the spec's boxes alone.
std::map<int64_t, int64_t> expected_places(const ParameterSpec& spec) {
  std::map<int64_t, int64_t> places;
  for (const BoxMapping& box : spec.boxes) {
    for_each_element(box, [&](const Shape& local, const Shape& global) {
      places[flat_index(spec.local_shape, local)] = flat_index(spec.global_shape, global);
    });
  }
  return places;
}

void check_all_ranges(const ParameterSpec& spec) {
  const auto places = expected_places(spec);
  const int64_t count = num_elements(spec.local_shape);
  REQUIRE(static_cast<int64_t>(places.size()) == count);
  for (int64_t begin = 0; begin <= count; ++begin) {
    for (int64_t end = begin; end <= count; ++end) {
      std::map<int64_t, int64_t> found;
      for (const BoxMapping& box : boxes_of_range(spec, {begin, end})) {
        for_each_element(box, [&](const Shape& local, const Shape& global) {
          const bool is_new =
              found.emplace(flat_index(spec.local_shape, local), flat_index(spec.global_shape, global)).second;
          REQUIRE(is_new);
        });
      }
      const std::map<int64_t, int64_t> wanted(places.lower_bound(begin), places.lower_bound(end));
      REQUIRE(found == wanted);
    }
  }
}

const Distribution kAny{};

}  // namespace

TEST_CASE("slice boxes: every range of every kind of slice has its elements once, at their global place") {
  check_all_ranges(replicated("vector", {7}, kAny, DecayGroup::kVector));
  check_all_ranges(replicated("one", {1}, kAny, DecayGroup::kVector));
  check_all_ranges(replicated("scalar", {}, kAny, DecayGroup::kVector));
  check_all_ranges(replicated("matrix", {4, 5}, kAny, DecayGroup::kMatrix));
  check_all_ranges(replicated("positions", {1, 3, 4}, kAny, DecayGroup::kVector));
  check_all_ranges(replicated("convolution", {2, 3, 2, 2}, kAny, DecayGroup::kMatrix));
  check_all_ranges(sharded("qkv.weight", {12, 3}, 0, 1, 3, 3, kAny, DecayGroup::kMatrix));
  check_all_ranges(sharded("qkv.bias", {12}, 0, 2, 4, 3, kAny, DecayGroup::kVector));
  check_all_ranges(sharded("proj.weight", {4, 9}, 1, 3, 7, 1, kAny, DecayGroup::kMatrix));
  check_all_ranges(sharded("fc1.weight", {8, 3}, 0, 5, 8, 1, kAny, DecayGroup::kMatrix));
}

TEST_CASE("slice boxes: a slice without elements has no boxes") {
  CHECK(boxes_of_range(sharded("empty", {6, 2}, 0, 3, 3, 1, kAny, DecayGroup::kMatrix), {0, 0}).empty());
}

TEST_CASE("slice boxes: a range is a part of a row, whole rows, and a part of a row") {
  const auto boxes = boxes_of_range(Shape{6, 10}, {7, 45});
  REQUIRE(boxes.size() == 3);
  CHECK(boxes[0].local_offset == Shape{0, 7});
  CHECK(boxes[0].size == Shape{1, 3});
  CHECK(boxes[1].local_offset == Shape{1, 0});
  CHECK(boxes[1].size == Shape{3, 10});
  CHECK(boxes[2].local_offset == Shape{4, 0});
  CHECK(boxes[2].size == Shape{1, 5});
  CHECK(boxes_of_range(Shape{2, 3, 4}, {0, 24}).size() == 1);
  CHECK(boxes_of_range(Shape{2, 3, 4}, {1, 23}).size() == 4);
  CHECK(boxes_of_range(Shape{3, 3, 4}, {1, 35}).size() == 5);
}
