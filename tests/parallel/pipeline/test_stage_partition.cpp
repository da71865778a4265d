// The cut into stages against exhaustive search.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "parallel/pipeline/schedule.h"
#include "src/base/error.h"
#include "src/base/random.h"

using namespace vit_hybrid;
using namespace vit_hybrid::pipeline;

namespace {

double cost_of(const std::vector<double>& costs, Range range) {
  return std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, 0.0);
}

double largest_cost(const std::vector<double>& costs, const std::vector<Range>& stages) {
  double largest = 0;
  for (const Range& stage : stages) {
    largest = std::max(largest, cost_of(costs, stage));
  }
  return largest;
}

// The least possible largest cost of units [begin, n) in `stages` stages, by trying every cut.
double best(const std::vector<double>& costs, int64_t begin, int stages) {
  const auto end = static_cast<int64_t>(costs.size());
  if (stages == 1) {
    return cost_of(costs, {begin, end});
  }
  double least = std::numeric_limits<double>::infinity();
  for (int64_t cut = begin + 1; cut <= end - (stages - 1); ++cut) {
    least = std::min(least, std::max(cost_of(costs, {begin, cut}), best(costs, cut, stages - 1)));
  }
  return least;
}

// Where the stages end.
std::vector<int64_t> ends(const std::vector<double>& costs, int num_stages) {
  std::vector<int64_t> found;
  for (const Range& stage : partition_stages(costs, num_stages)) {
    found.push_back(stage.end);
  }
  return found;
}

std::string refusal(int units, int stages) {
  try {
    partition_stages(std::vector<double>(static_cast<size_t>(units), 1.0), stages);
    return "";
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    return error.message();
  }
}

}  // namespace

TEST_CASE("stage_partition: the largest cost is the least possible, and every unit is in one stage") {
  const RandomStream random(11, Purpose::kTest);
  uint64_t draw = 0;
  for (int i = 0; i < 300; ++i) {
    const auto units = 1 + random.below(9, draw++);
    const auto stages = 1 + static_cast<int>(random.below(units, draw++));
    std::vector<double> costs(units);
    for (double& cost : costs) {
      cost = i % 2 == 0 ? random.uniform(draw++) : static_cast<double>(random.below(4, draw++));
    }
    const auto cut = partition_stages(costs, stages);
    REQUIRE(cut.size() == static_cast<size_t>(stages));
    int64_t end = 0;
    for (const Range& stage : cut) {
      CHECK(stage.begin == end);
      CHECK(stage.size() >= 1);
      end = stage.end;
    }
    CHECK(end == static_cast<int64_t>(units));
    CHECK(largest_cost(costs, cut) <= best(costs, 0, stages) + 1e-8);
  }
}

TEST_CASE("stage_partition: equal costs give the even split, also when they are not exact in binary") {
  for (const double cost : {1.0, 0.1}) {
    for (int units = 1; units <= 24; ++units) {
      for (int stages = 1; stages <= units; ++stages) {
        const auto cut = partition_stages(std::vector<double>(static_cast<size_t>(units), cost), stages);
        const Partition even(units, stages);
        for (int stage = 0; stage < stages; ++stage) {
          CHECK(cut[static_cast<size_t>(stage)].begin == even.part(stage).begin);
          CHECK(cut[static_cast<size_t>(stage)].end == even.part(stage).end);
        }
      }
    }
  }
}

TEST_CASE("stage_partition: embedding and head weigh in") {
  // An embedding of 5, 12 blocks of 10 and a head of 15. The even split of the 14 units, 3 4 3 4, has a stage of 45;
  // the best is 40, with 2, 4, 4 and 2 blocks.
  std::vector<double> costs(14, 10.0);
  costs.front() = 5.0;
  costs.back() = 15.0;
  CHECK(ends(costs, 4) == std::vector<int64_t>{3, 7, 11, 14});
  CHECK(ends({100.0, 1.0, 1.0, 1.0}, 2) == std::vector<int64_t>{1, 4});
}

TEST_CASE("stage_partition: every stage needs a unit") {
  CHECK(refusal(3, 4) ==
        "the pipeline cannot have 4 stages: the model has 3 layers to cut between, and every stage needs one; "
        "allowed: 1 to 3");
  CHECK(refusal(3, 0) ==
        "the pipeline cannot have 0 stages: the model has 3 layers to cut between, and every stage needs one; "
        "allowed: 1 to 3");
  CHECK(refusal(3, 3).empty());
}
