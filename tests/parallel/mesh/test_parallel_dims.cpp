// ParallelDims: ranks and coordinates in every order, and the texts of its refusals.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/mesh/parallel_dims.h"
#include "src/base/error.h"

using vit_hybrid::Error;
using vit_hybrid::ErrorClass;
using namespace vit_hybrid::mesh;

namespace {

const std::vector<std::string> kOrders = {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"};

Coordinate coordinate(int dp, int tp, int pp) {
  Coordinate c{};
  on(c, Axis::kData) = dp;
  on(c, Axis::kTensor) = tp;
  on(c, Axis::kPipeline) = pp;
  return c;
}

std::string refusal(int ranks, int dp, int tp, int pp, const std::string& order = kDefaultOrder) {
  try {
    ParallelDims::for_ranks(ranks, dp, tp, pp, order);
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
  for (const std::string& order : kOrders) {
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
  for (const std::string& order : kOrders) {
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

TEST_CASE("parallel_dims: dp auto takes the ranks that are left") {
  CHECK(ParallelDims::for_ranks(16, kAutoDegree, 2, 2) == ParallelDims(4, 2, 2));
  CHECK(ParallelDims::for_ranks(1, kAutoDegree, 1, 1) == ParallelDims());
  CHECK(refusal(6, kAutoDegree, 4, 1) ==
        "tp 4 x pp 1 = 4 does not divide the 6 ranks that were started, so --dp auto has no value; "
        "tp x pp must be one of 1, 2, 3, 6");
}

TEST_CASE("parallel_dims: degrees that do not multiply to the number of ranks are refused with the valid choices") {
  CHECK(refusal(8, 4, 2, 2) ==
        "dp 4 x tp 2 x pp 2 needs 16 ranks, but 8 were started; use --dp 2 (dp 2 x tp 2 x pp 2) or "
        "--tp 1 (dp 4 x tp 1 x pp 2) or --pp 1 (dp 4 x tp 2 x pp 1), or start 16");
  CHECK(refusal(12, 1, 2, 2) ==
        "dp 1 x tp 2 x pp 2 needs 4 ranks, but 12 were started; use --dp 3 (dp 3 x tp 2 x pp 2) or "
        "--tp 6 (dp 1 x tp 6 x pp 2) or --pp 6 (dp 1 x tp 2 x pp 6), or start 4");
  CHECK(refusal(7, 2, 2, 2) ==
        "dp 2 x tp 2 x pp 2 needs 8 ranks, but 7 were started; choose degrees among the divisors of 7: 1, 7, or "
        "start 8");
  CHECK(refusal(1, 1, 2, 1) ==
        "dp 1 x tp 2 x pp 1 needs 2 ranks, but 1 was started; use --tp 1 (dp 1 x tp 1 x pp 1), or start 2");
}

TEST_CASE("parallel_dims: bad degrees and orders are refused") {
  CHECK(refusal(8, -1, 2, 2) == "--dp -1 is not a degree; allowed are 1 to 1048576, or auto");
  CHECK(refusal(8, 1, 0, 2) == "--tp 0 is not a degree; allowed are 1 to 1048576");
  CHECK(refusal(8, 1, 2, -3) == "--pp -3 is not a degree; allowed are 1 to 1048576");
  CHECK(refusal(8, 2'000'000, 1, 1) == "--dp 2000000 is not a degree; allowed are 1 to 1048576, or auto");
  for (const std::string order : {"", "tp", "tp-dp", "tp-dp-dp", "tp-dp-pp-tp", "tp,dp,pp", "tp-dp-xx", "TP-DP-PP"}) {
    CHECK(refusal(8, 2, 2, 2, order) ==
          "--order " + order +
              " does not name each of dp, tp and pp once; give them with hyphens, the fastest first; the default is "
              "tp-dp-pp");
  }
}
