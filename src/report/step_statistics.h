// Statistics of the steps of a measured run. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace vit_hybrid::train {

/// How a figure is spread over the steps.
struct Spread {
  double min = 0.0;
  double median = 0.0;  ///< of an even number of values the mean of the two in the middle
  double mean = 0.0;
  double deviation = 0.0;  ///< standard deviation of the sample (n - 1); 0 of one value
};

/// `values` has at least one.
Spread spread_of(std::vector<double> values);

/// How many of the first of `steps` steps warm caches, pages and allocators up and do not count: a fifth, 1 to 5, but
/// none of a single step.
int64_t warm_up_steps(int64_t steps);

}  // namespace vit_hybrid::train
