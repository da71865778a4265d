// LrSchedule: the formulas.
#include "src/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace vit_hybrid::train {

namespace {

constexpr double kOneCycleStartDivisor = 25.0;
constexpr double kOneCycleFinalDivisor = 1e4;
constexpr double kOneCycleWarmupShare = 0.3;

// From `first` at x = 0 to `last` at x = 1 along half a cosine.
double cosine_between(double first, double last, double x) {
  return last + (first - last) * 0.5 * (1.0 + std::cos(std::numbers::pi * x));
}

double one_cycle(const LrSchedule& schedule, double t) {
  const double start = schedule.base / kOneCycleStartDivisor;
  const double final = start / kOneCycleFinalDivisor;
  const double total = static_cast<double>(schedule.total);
  const double up =
      schedule.warmup > 0 ? static_cast<double>(schedule.warmup) - 1.0 : kOneCycleWarmupShare * total - 1.0;
  if (t <= up) {
    return cosine_between(start, schedule.base, up > 0.0 ? t / up : 1.0);
  }
  const double down = total - 1.0 - up;
  return cosine_between(schedule.base, final, down > 0.0 ? std::min(1.0, (t - up) / down) : 1.0);
}

}  // namespace

double LrSchedule::at(int64_t t) const {
  const auto iteration = static_cast<double>(t);
  if (kind == Kind::kOneCycle) {
    return one_cycle(*this, iteration);
  }
  const double warm = warmup > 0 ? std::min(1.0, (iteration + 1.0) / static_cast<double>(warmup)) : 1.0;
  if (kind == Kind::kConstant) {
    return base * warm;
  }
  if (t < warmup) {
    return base * warm;
  }
  return base * 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, iteration / static_cast<double>(total))));
}

}  // namespace vit_hybrid::train
