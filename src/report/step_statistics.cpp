// Spreads of sorted values.
#include "src/report/step_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/base/error.h"

namespace vit_hybrid::train {

Spread spread_of(std::vector<double> values) {
  VH_ASSERT(!values.empty(), "no values");
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  Spread spread;
  spread.min = values.front();
  spread.median = 0.5 * (values[(count - 1) / 2] + values[count / 2]);
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(count);
  double squares = 0.0;
  for (const double value : values) {
    squares += (value - spread.mean) * (value - spread.mean);
  }
  spread.deviation = count > 1 ? std::sqrt(squares / static_cast<double>(count - 1)) : 0.0;
  return spread;
}

int64_t warm_up_steps(int64_t steps) {
  return steps < 2 ? 0 : std::clamp<int64_t>(steps / 5, 1, 5);
}

}  // namespace vit_hybrid::train
