// LrSchedule: the learning rate of an iteration as a pure function: constant, cosine, linear, wsd, one-cycle; LrRange:
// the curve of a learning-rate range test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/json.h"

namespace vit_hybrid::train {

/// Learning rate by iteration t = 0 .. T - 1, with the full rate `base` = lr0, the last rate `least` and a warm-up of w
/// iterations, (t + 1)/w lr0, after which the decay begins, from the full rate: x = (t - w)/(T - w).
/// kCosine: least + (lr0 - least)/2 (1 + cos(pi x)) (I. Loshchilov, F. Hutter, SGDR, ICLR 2017, eq. 5, one cycle).
/// kLinear: least + (lr0 - least) (1 - x).
/// kWsd: lr0 until the last D = decay_share T iterations, then linear in x = (t - (T - D))/D (warm-up, stable, decay:
/// S. Hu et al., MiniCPM, arXiv:2404.06395, section 4; the linear cool-down: A. Hägele et al., arXiv:2405.18392).
/// kCosineReference: the reference workload's, lr0 min((t + 1)/w, (1 + cos(pi t/T))/2), whose decay counts from the
/// start; without warm-up it is kCosine. kConstant: lr0. kOneCycle: L. N. Smith, N. Topin, "Super-convergence", 2018,
/// in PyTorch's form: cosine from lr0/25 up to lr0 over `warmup` iterations (30 % of the total where it is 0), then
/// cosine down to lr0/25/10^4.
/// kRange: least (lr0 / least)^(t/(T - 1)), of a range test (L. N. Smith, WACV 2017, section 3.3, with rates that rise
/// exponentially). `least` of the others is reached where the run ends, at t = T: the last iteration has a rate one
/// step above it.
struct LrSchedule {
  enum class Kind { kConstant, kCosine, kOneCycle, kLinear, kWsd, kCosineReference, kRange };
  Kind kind = Kind::kCosine;
  double base = 1e-3;
  int64_t warmup = 0;
  int64_t total = 1;
  double least = 0.0;
  double decay_share = 0.2;

  /// Learning rate of iteration `t`, t = 0 for the first; beyond `total` it stays at the last value.
  double at(int64_t t) const;
  /// Iterations of the decay of kWsd, at least 1.
  int64_t decay_steps() const;
  /// What is wrong with the lengths of its parts, as a sentence with options and numbers; empty where they fit.
  std::string problem() const;
};

/// The rates of a run as text, a line "step rate" each, steps counted from 1 as in the records: the turning points, and
/// every `every`-th iteration between them (0: as many as make about 200 lines). Error(kUsage) where those would be
/// more than a million.
std::string lr_table(const LrSchedule& schedule, int64_t every);

// LrRange: the curve of a learning-rate range test, and what it says.

/// The losses of steps whose rate rises exponentially: L. N. Smith, "Cyclical learning rates for training neural
/// networks", WACV 2017, section 3.3. The loss of each step is smoothed: an exponential mean over a tenth of the steps
/// (two at least), divided by what the weights so far sum to. The same on all ranks that are told the same.
class LrRange {
 public:
  /// Of so many steps.
  explicit LrRange(int64_t steps);

  void add(double lr, double loss);

  /// Whether the smoothed loss has come to more than four times its least, or is not finite: more steps tell nothing.
  bool has_diverged() const;
  /// The rate at which the smoothed loss falls fastest with the logarithm of the rate, of those up to that of the least
  /// loss; 0 where it falls nowhere, or less than three steps were done.
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

  double memory_;  // what remains of the mean in a step
  std::vector<Point> points_;
  double mean_ = 0.0;
  double weight_ = 0.0;
  double least_ = 0.0;
};

}  // namespace vit_hybrid::train
