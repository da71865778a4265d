// Slices of parameters: their boxes are disjoint, cover the slice, and together the slices cover the tensor.
#include <doctest/doctest.h>

#include <vector>

#include "parallel/tensor/parameter_spec.h"
#include "src/base/error.h"
#include "src/base/partition.h"

using namespace vit_hybrid;
using namespace vit_hybrid::tensor;

namespace {

// Adds one to each element of [shape] (flat, two dims) that lies in the box.
void mark(std::vector<int>& counts, const Shape& shape, const Shape& offset, const Shape& size) {
  for (int64_t row = 0; row < size[0]; ++row) {
    for (int64_t column = 0; column < size[1]; ++column) {
      ++counts[static_cast<size_t>((offset[0] + row) * shape[1] + offset[1] + column)];
    }
  }
}

}  // namespace

TEST_CASE("parameter_spec: a replicated parameter is one box") {
  const ParameterSpec spec =
      replicated("norm.weight", {24}, {Distribution::Kind::kConstant, 1.0, 0.0}, DecayGroup::kVector);
  CHECK(spec.name == "norm.weight");
  CHECK(spec.global_shape == Shape{24});
  CHECK(spec.local_shape == Shape{24});
  CHECK(spec.replicated_over_tensor);
  CHECK(spec.decay == DecayGroup::kVector);
  REQUIRE(spec.boxes.size() == 1);
  CHECK(spec.boxes[0].global_offset == Shape{0});
  CHECK(spec.boxes[0].local_offset == Shape{0});
  CHECK(spec.boxes[0].size == Shape{24});
  CHECK(num_elements({2, 3, 4}) == 24);
  CHECK(num_elements({2, 0, 4}) == 0);
}

TEST_CASE("parameter_spec: the slices of all ranks cover the tensor once, along either dim and in groups") {
  for (const int groups : {1, 3}) {
    for (const int dim : {0, 1}) {
      for (int64_t ranks = 1; ranks <= 5; ++ranks) {
        const Shape shape = dim == 0 ? Shape{groups * 4, 5} : Shape{5, groups * 4};
        const Partition rows(4, ranks);  // over five ranks, one has nothing
        std::vector<int> global(static_cast<size_t>(num_elements(shape)), 0);
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const Range part = rows.part(rank);
          const ParameterSpec spec =
              sharded("w", shape, dim, part.begin, part.end, groups, Distribution{}, DecayGroup::kMatrix);
          CHECK_FALSE(spec.replicated_over_tensor);
          CHECK(spec.global_shape == shape);
          CHECK(spec.local_shape[static_cast<size_t>(dim)] == groups * part.size());
          std::vector<int> local(static_cast<size_t>(num_elements(spec.local_shape)), 0);
          for (const BoxMapping& box : spec.boxes) {
            mark(global, shape, box.global_offset, box.size);
            mark(local, spec.local_shape, box.local_offset, box.size);
          }
          CHECK(local == std::vector<int>(local.size(), 1));
        }
        CHECK(global == std::vector<int>(global.size(), 1));
      }
    }
  }
}

TEST_CASE("parameter_spec: a qkv slice is the same rows of each of q, k and v") {
  const ParameterSpec spec = sharded("qkv.weight", {24, 8}, 0, 2, 5, 3, Distribution{}, DecayGroup::kMatrix);
  CHECK(spec.local_shape == Shape{9, 8});
  REQUIRE(spec.boxes.size() == 3);
  for (int64_t third = 0; third < 3; ++third) {
    const BoxMapping& box = spec.boxes[static_cast<size_t>(third)];
    CHECK(box.global_offset == Shape{8 * third + 2, 0});
    CHECK(box.local_offset == Shape{3 * third, 0});
    CHECK(box.size == Shape{3, 8});
  }
}

TEST_CASE("parameter_spec: rows outside of a group are a broken invariant") {
  CHECK_THROWS_AS(sharded("w", {24, 8}, 0, 2, 9, 3, Distribution{}, DecayGroup::kMatrix), Error);
  CHECK_THROWS_AS(sharded("w", {23, 8}, 0, 2, 5, 3, Distribution{}, DecayGroup::kMatrix), Error);
  CHECK_THROWS_AS(sharded("w", {24, 8}, 2, 2, 5, 1, Distribution{}, DecayGroup::kMatrix), Error);
}
