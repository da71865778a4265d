// LrSchedule: the formulas of constant, cosine, linear, wsd and one-cycle rates, and of the warm-up.
#include "src/config/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

constexpr int64_t kUsualRows = 200;
constexpr int64_t kMostRows = 1'000'000;
constexpr int kDigits = 12;  // all that the formula gives: the last ones of a double are rounding
constexpr double kOneCycleStartDivisor = 25.0;
constexpr double kOneCycleFinalDivisor = 1e4;
constexpr double kOneCycleWarmupShare = 0.3;

// From `first` at x = 0 to `last` at x = 1 along half a cosine.
double cosine_between(double first, double last, double x) {
  return last + (first - last) * 0.5 * (1.0 + std::cos(std::numbers::pi * x));
}

// The last iteration of the rise; fractional where it is a share of the run.
double one_cycle_top(const LrSchedule& schedule) {
  return schedule.warmup > 0 ? static_cast<double>(schedule.warmup) - 1.0
                             : kOneCycleWarmupShare * static_cast<double>(schedule.total) - 1.0;
}

double one_cycle(const LrSchedule& schedule, double t) {
  const double start = schedule.base / kOneCycleStartDivisor;
  const double final = start / kOneCycleFinalDivisor;
  const double up = one_cycle_top(schedule);
  if (t <= up) {
    return cosine_between(start, schedule.base, up > 0.0 ? t / up : 1.0);
  }
  const double down = static_cast<double>(schedule.total) - 1.0 - up;
  return cosine_between(schedule.base, final, down > 0.0 ? std::min(1.0, (t - up) / down) : 1.0);
}

// The part of the iterations from `first` to the end that lies before `t`, 0 to 1.
double share_of(int64_t first, int64_t total, int64_t t) {
  const auto length = static_cast<double>(std::max<int64_t>(total - first, 1));
  return std::clamp(static_cast<double>(t - first) / length, 0.0, 1.0);
}

// First and last iteration, and those where one part of the schedule gives way to the next; ascending, below its total.
std::vector<int64_t> turning_points(const LrSchedule& schedule) {
  std::vector<int64_t> points = {0, schedule.warmup - 1, schedule.warmup, schedule.total - 1};
  if (schedule.kind == LrSchedule::Kind::kOneCycle) {
    points.push_back(static_cast<int64_t>(one_cycle_top(schedule)));
  }
  if (schedule.kind == LrSchedule::Kind::kWsd) {
    points.push_back(schedule.total - schedule.decay_steps());
  }
  std::erase_if(points, [&](int64_t t) { return t < 0 || t >= schedule.total; });
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

}  // namespace

double LrSchedule::at(int64_t t) const {
  const double warm = warmup > 0 ? std::min(1.0, static_cast<double>(t + 1) / static_cast<double>(warmup)) : 1.0;
  switch (kind) {
    case Kind::kOneCycle:
      return one_cycle(*this, static_cast<double>(t));
    case Kind::kCosineReference:
      return std::min(base * warm, cosine_between(base, 0.0, share_of(0, total, t)));
    case Kind::kConstant:
      return base * warm;
    case Kind::kRange:
      return least * std::pow(base / least, static_cast<double>(std::min(t, total - 1)) /
                                                static_cast<double>(std::max<int64_t>(total - 1, 1)));
    default:
      break;
  }
  if (t < warmup) {
    return base * warm;
  }
  if (kind == Kind::kCosine) {
    return cosine_between(base, least, share_of(warmup, total, t));
  }
  const int64_t first = kind == Kind::kWsd ? std::max(warmup, total - decay_steps()) : warmup;
  return base + (least - base) * share_of(first, total, t);
}

int64_t LrSchedule::decay_steps() const {
  return std::max<int64_t>(1, std::llround(decay_share * static_cast<double>(total)));
}

std::string LrSchedule::problem() const {
  if (warmup > total) {
    return str("--warmup is ", warmup, ", longer than the run of ", total, " iterations; allowed: 0 to ", total);
  }
  if (kind == Kind::kWsd && warmup > total - decay_steps()) {
    return str("--warmup ", warmup, " and the decay over ", decay_steps(), " iterations (--decay-share ", decay_share,
               ") are longer than the run of ", total, " iterations; give a smaller one of them");
  }
  return {};
}

std::string lr_table(const LrSchedule& schedule, int64_t every) {
  const int64_t stride = every > 0 ? every : std::max<int64_t>(1, schedule.total / kUsualRows);
  if (schedule.total / stride > kMostRows) {
    throw Error(
        ErrorClass::kUsage,
        str("--print-lr-every is ", every, ", which makes ", schedule.total / stride, " lines of the run's ",
            schedule.total, " iterations; allowed: auto, or at least ", (schedule.total + kMostRows - 1) / kMostRows));
  }
  std::vector<int64_t> turning = turning_points(schedule);
  auto next_turning = turning.begin();
  std::string out = "# step rate\n";
  const auto add = [&](int64_t t) { out += str(t + 1, " ", number_text(schedule.at(t), kDigits), "\n"); };
  for (int64_t t = 0; t < schedule.total; t += stride) {
    for (; next_turning != turning.end() && *next_turning < t; ++next_turning) {
      add(*next_turning);
    }
    next_turning += next_turning != turning.end() && *next_turning == t ? 1 : 0;
    add(t);
  }
  for (; next_turning != turning.end(); ++next_turning) {
    add(*next_turning);
  }
  return out;
}

}  // namespace vit_hybrid::train
