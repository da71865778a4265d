// ParallelDims: ranks and coordinates in every order, and the texts of its refusals.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/mesh/device_mesh.h"
#include "src/base/error.h"

using vit_hybrid::Error;
using vit_hybrid::ErrorClass;
using namespace vit_hybrid::mesh;

namespace {

const std::vector<std::string> kAllOrders(kOrders.begin(), kOrders.end());

Coordinate coordinate(int dp, int tp, int pp) {
  Coordinate c{};
  on(c, Axis::kData) = dp;
  on(c, Axis::kTensor) = tp;
  on(c, Axis::kPipeline) = pp;
  return c;
}

std::string refusal(int dp, int tp, int pp, const std::string& order = kDefaultOrder) {
  try {
    const ParallelDims dims(dp, tp, pp, order);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("parallel_dims: in the default order tp is fastest, then dp, then pp") {
  const ParallelDims dims(4, 2, 3);
  CHECK(dims.size() == 24);
  CHECK(dims.data() == 4);
  CHECK(dims.tensor() == 2);
  CHECK(dims.pipeline() == 3);
  CHECK(dims.text() == "dp 4 x tp 2 x pp 3");
  CHECK(dims.coordinate(0) == coordinate(0, 0, 0));
  CHECK(dims.coordinate(1) == coordinate(0, 1, 0));
  CHECK(dims.coordinate(2) == coordinate(1, 0, 0));
  CHECK(dims.coordinate(8) == coordinate(0, 0, 1));
  CHECK(dims.coordinate(23) == coordinate(3, 1, 2));
}

TEST_CASE("parallel_dims: every order counts its axes in turn") {
  // Nested loops, the last word outermost, give the ranks one after the other.
  for (const std::string& order : kAllOrders) {
    CAPTURE(order);
    const ParallelDims dims(3, 2, 4, order);
    const auto degree = [&](const std::string& word) { return word == "dp" ? 3 : word == "tp" ? 2 : 4; };
    const std::string fast = order.substr(0, 2);
    const std::string middle = order.substr(3, 2);
    const std::string slow = order.substr(6, 2);
    int rank = 0;
    for (int s = 0; s < degree(slow); ++s) {
      for (int m = 0; m < degree(middle); ++m) {
        for (int f = 0; f < degree(fast); ++f) {
          const auto value = [&](const char* word) { return word == fast ? f : word == middle ? m : s; };
          const Coordinate expected = coordinate(value("dp"), value("tp"), value("pp"));
          CHECK(dims.coordinate(rank) == expected);
          CHECK(dims.rank(expected) == rank);
          ++rank;
        }
      }
    }
  }
}

TEST_CASE("parallel_dims: groups") {
  const ParallelDims dims(2, 2, 2);
  CHECK(dims.group(5, {Axis::kTensor}) == std::vector<int>{4, 5});
  CHECK(dims.group(5, {Axis::kData}) == std::vector<int>{5, 7});
  CHECK(dims.group(5, {Axis::kPipeline}) == std::vector<int>{1, 5});
  CHECK(dims.group(5, {Axis::kTensor, Axis::kPipeline}) == std::vector<int>{0, 1, 4, 5});
  CHECK(dims.group(5, {}) == std::vector<int>{5});
  for (const std::string& order : kAllOrders) {
    const ParallelDims other(3, 2, 2, order);
    for (int rank = 0; rank < other.size(); ++rank) {
      for (const Axis axis : kAxes) {
        const auto group = other.group(rank, {axis});
        CHECK(static_cast<int>(group.size()) == other.degree(axis));
        // The place in the group of an axis is the coordinate on it.
        const auto place = std::find(group.begin(), group.end(), rank) - group.begin();
        CHECK(place == on(other.coordinate(rank), axis));
      }
    }
  }
}

TEST_CASE("parallel_dims: parts of the data axis are consecutive ranks of it, replicas have one place in all parts") {
  const ParallelDims dims(6, 2, 1, "tp-dp-pp", 3);
  CHECK(dims.cuts_data());
  CHECK(dims.members(3, Group::kData) == std::vector<int>{1, 3, 5, 7, 9, 11});
  CHECK(dims.members(3, Group::kShard) == std::vector<int>{1, 3, 5});
  CHECK(dims.members(8, Group::kShard) == std::vector<int>{6, 8, 10});
  CHECK(dims.members(3, Group::kReplica) == std::vector<int>{3, 9});
  CHECK(dims.members(3, Group::kTensor) == std::vector<int>{2, 3});
  for (const int shard : {1, 6}) {  // the groups are those of the axis, or of one rank
    const ParallelDims whole(6, 2, 1, "tp-dp-pp", shard);
    CHECK_FALSE(whole.cuts_data());
    CHECK(whole.members(3, Group::kShard) == std::vector<int>{3});
    CHECK(whole.members(3, Group::kReplica) == std::vector<int>{3});
  }
  for (const std::string& order : kAllOrders) {
    const ParallelDims other(4, 2, 2, order, 2);
    for (int rank = 0; rank < other.size(); ++rank) {
      const int at = on(other.coordinate(rank), Axis::kData);
      for (const auto& [group, place] : {std::pair(Group::kShard, at % 2), std::pair(Group::kReplica, at / 2)}) {
        const auto members = other.members(rank, group);
        CHECK(members.size() == 2);
        CHECK(members.at(static_cast<size_t>(place)) == rank);
      }
    }
  }
}

TEST_CASE("parallel_dims: bad degrees and orders are refused") {
  CHECK(refusal(-1, 2, 2) == "--dp -1 is not a degree; allowed are 1 to 1048576, or auto");
  CHECK(refusal(1, 0, 2) == "--tp 0 is not a degree; allowed are 1 to 1048576");
  CHECK(refusal(1, 2, -3) == "--pp -3 is not a degree; allowed are 1 to 1048576");
  CHECK(refusal(2'000'000, 1, 1) == "--dp 2000000 is not a degree; allowed are 1 to 1048576, or auto");
  for (const std::string order : {"", "tp", "tp-dp", "tp-dp-dp", "tp-dp-pp-tp", "tp,dp,pp", "tp-dp-xx", "TP-DP-PP"}) {
    CHECK(refusal(2, 2, 2, order) ==
          "--order " + order +
              " does not name each of dp, tp and pp once; give them with hyphens, the fastest first; the default is "
              "tp-dp-pp");
  }
}
