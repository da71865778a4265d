// LrSchedule: constant, cosine, linear, wsd and one-cycle rates, warm-up; the reading of a range test.
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

namespace {

constexpr double kDiverged = 4.0;  // times the least loss

}  // namespace

LrRange::LrRange(int64_t steps) : memory_(1.0 - 10.0 / static_cast<double>(std::max<int64_t>(steps, 20))) {}

void LrRange::add(double lr, double loss) {
  mean_ = memory_ * mean_ + (1.0 - memory_) * loss;
  weight_ = memory_ * weight_ + (1.0 - memory_);
  points_.push_back({lr, loss, mean_ / weight_});
  const double smoothed = points_.back().smoothed;
  least_ = points_.size() == 1 ? smoothed : std::min(least_, smoothed);
}

bool LrRange::has_diverged() const {
  return !points_.empty() && !(points_.back().smoothed <= kDiverged * least_);
}

std::vector<LrRange::Point> LrRange::told() const {
  std::vector<Point> told = points_;
  if (has_diverged()) {
    told.pop_back();
  }
  return told;
}

double LrRange::steepest() const {
  const auto points = told();
  const double last = of_least_loss();  // where training fails behind it the loss may fall again, from higher up
  double rate = 0.0, slope = 0.0;
  for (size_t i = 1; i + 1 < points.size() && points[i].lr <= last; ++i) {
    const Point &before = points[i - 1], &after = points[i + 1];
    const double here = (after.smoothed - before.smoothed) / std::log(after.lr / before.lr);
    if (here < slope) {
      slope = here;
      rate = points[i].lr;
    }
  }
  return rate;
}

double LrRange::of_least_loss() const {
  const auto points = told();
  const auto least = std::min_element(points.begin(), points.end(),
                                      [](const Point& a, const Point& b) { return a.smoothed < b.smoothed; });
  return least == points.end() ? 0.0 : least->lr;
}

Json LrRange::to_json() const {
  const auto or_null = [](double rate) { return rate > 0.0 ? Json(rate) : Json(); };
  Json curve = Json::array();
  for (const Point& point : points_) {
    curve.push_back({point.lr, point.loss, point.smoothed});
  }
  return {{"steepest", or_null(steepest())},
          {"of_least_loss", or_null(of_least_loss())},
          {"has_diverged", has_diverged()},
          {"curve", std::move(curve)}};
}

std::vector<std::string> LrRange::lines() const {
  if (points_.empty()) {
    return {};
  }
  const std::string end =
      has_diverged()
          ? str("the smoothed loss diverged at a learning rate of ", number_text(points_.back().lr, 3))
          : str("the smoothed loss did not diverge up to a learning rate of ", number_text(points_.back().lr, 3));
  if (steepest() == 0.0) {
    return {str("learning-rate range test of ", points_.size(), " steps: ", end, ", and fell nowhere")};
  }
  return {str("learning-rate range test of ", points_.size(), " steps: ", end),
          str("  it fell fastest at --lr ", number_text(steepest(), 3), ", and was least at ",
              number_text(of_least_loss(), 3), ", of which a tenth is ", number_text(of_least_loss() / 10.0, 3))};
}

}  // namespace vit_hybrid::train
