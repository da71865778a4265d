// The two dynamic programmes of partition_stages().
#include "parallel/pipeline/stage_partition.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::pipeline {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Sums of the same costs in another order may differ by rounding; within this they are equal.
constexpr double kSlack = 1e-9;

// Best value of a cut of the first units into stages, and where the last of these stages begins.
struct Cell {
  double value = kInfinity;
  int64_t begin = -1;
};

// cells[s][u]: the first u units in s stages. `combine(value, s, begin, end)` is the value when stage s-1 of value
// `value` is followed by a stage of units [begin, end); ties go to the lower begin.
template <class Combine>
std::vector<std::vector<Cell>> solve(int64_t num_units, int num_stages, Combine combine) {
  std::vector cells(static_cast<size_t>(num_stages) + 1, std::vector<Cell>(static_cast<size_t>(num_units) + 1));
  cells[0][0].value = 0.0;
  for (int stage = 1; stage <= num_stages; ++stage) {
    const auto& before = cells[static_cast<size_t>(stage) - 1];
    for (int64_t end = stage; end <= num_units; ++end) {
      Cell& cell = cells[static_cast<size_t>(stage)][static_cast<size_t>(end)];
      for (int64_t begin = stage - 1; begin < end; ++begin) {
        const double value = combine(before[static_cast<size_t>(begin)].value, stage, begin, end);
        if (value < cell.value) {
          cell = {value, begin};
        }
      }
    }
  }
  return cells;
}

}  // namespace

std::vector<Range> partition_stages(const std::vector<double>& costs, int num_stages) {
  const auto num_units = static_cast<int64_t>(costs.size());
  if (num_stages < 1 || num_stages > num_units) {
    throw Error(ErrorClass::kUsage,
                str("the pipeline cannot have ", num_stages, " stages: the model has ", num_units,
                    " layers to cut between, and every stage needs one; allowed: 1 to ", num_units),
                "choose a smaller --pp, or a deeper model");
  }
  std::vector<double> sums(costs.size() + 1, 0.0);
  for (size_t i = 0; i < costs.size(); ++i) {
    VH_ASSERT(costs[i] >= 0.0, str("cost of unit ", i, " is ", costs[i]));
    sums[i + 1] = sums[i] + costs[i];
  }
  const auto cost = [&sums](int64_t begin, int64_t end) {
    return sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(begin)];
  };
  const auto last = static_cast<size_t>(num_stages);
  const auto largest = solve(num_units, num_stages, [&](double value, int, int64_t begin, int64_t end) {
    return std::max(value, cost(begin, end));
  });
  const double allowed = largest[last][costs.size()].value + kSlack * sums.back();
  const Partition even(num_units, num_stages);
  const auto nearest = solve(num_units, num_stages, [&](double value, int stage, int64_t begin, int64_t end) {
    const double distance = static_cast<double>(std::abs(end - even.part(stage - 1).end));
    return cost(begin, end) <= allowed ? value + distance : kInfinity;
  });
  std::vector<Range> stages(last);
  int64_t end = num_units;
  for (size_t stage = last; stage > 0; --stage) {
    stages[stage - 1] = {nearest[stage][static_cast<size_t>(end)].begin, end};
    end = stages[stage - 1].begin;
  }
  return stages;
}

}  // namespace vit_hybrid::pipeline
