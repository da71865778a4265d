// The smoothed curve and its slopes.
#include "src/report/lr_range.h"

#include <algorithm>
#include <cmath>

#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

constexpr double kMemory = 0.98;
constexpr double kDiverged = 4.0;  // times the least loss

}  // namespace

void LrRange::add(double lr, double loss) {
  mean_ = kMemory * mean_ + (1.0 - kMemory) * loss;
  weight_ = kMemory * weight_ + (1.0 - kMemory);
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
  double rate = 0.0, slope = 0.0;
  for (size_t i = 1; i + 1 < points.size(); ++i) {
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
      has_diverged() ? str("the loss diverged at a learning rate of ", number_text(points_.back().lr, 3))
                     : str("the loss did not diverge up to a learning rate of ", number_text(points_.back().lr, 3));
  if (steepest() == 0.0) {
    return {str("learning-rate range test of ", points_.size(), " steps: ", end, ", and fell nowhere")};
  }
  return {str("learning-rate range test of ", points_.size(), " steps: ", end),
          str("  it fell fastest at --lr ", number_text(steepest(), 3), ", and was least at ",
              number_text(of_least_loss(), 3), ", of which a tenth is ", number_text(of_least_loss() / 10.0, 3))};
}

}  // namespace vit_hybrid::train
