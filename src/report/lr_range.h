// LrRange: the curve of a learning-rate range test, and what it says.
#pragma once

#include <string>
#include <vector>

#include "src/base/json.h"

namespace vit_hybrid::train {

/// The losses of steps whose rate rises exponentially: L. N. Smith, "Cyclical learning rates for training neural
/// networks", WACV 2017, section 3.3. The loss of each step is smoothed as fastai's finder does it: an exponential mean
/// of weight 0.98, divided by what the weights so far sum to. The same on all ranks that are told the same.
class LrRange {
 public:
  void add(double lr, double loss);

  /// Whether the smoothed loss has come to more than four times its least, or is not finite: more steps tell nothing.
  bool has_diverged() const;
  /// The rate at which the smoothed loss falls fastest with the logarithm of the rate; 0 where it falls nowhere, or
  /// less than three steps were done.
  double steepest() const;
  /// The rate of the least smoothed loss; 0 of no step.
  double of_least_loss() const;

  /// {"steepest", "of_least_loss", "has_diverged", "curve": [[rate, loss, smoothed loss], ...]}; null for a rate that
  /// there is not.
  Json to_json() const;
  std::vector<std::string> lines() const;

 private:
  struct Point {
    double lr;
    double loss;
    double smoothed;
  };
  /// Those before the divergence.
  std::vector<Point> told() const;

  std::vector<Point> points_;
  double mean_ = 0.0;
  double weight_ = 0.0;
  double least_ = 0.0;
};

}  // namespace vit_hybrid::train
