// Scores of an evaluation: loss, RMSE and ACC by channel, top-1 and top-5: their sums, figures and report.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

/// What the scores of a field are made of: means of w_i x over its rows i and columns j, with w_i the weight of a row,
/// of a forecast f, the truth y and the state p that persistence predicts; a, b and s are their anomalies.
enum FieldMoment : int64_t {
  kError,                  // f - y
  kSquaredError,           // (f - y)^2
  kCovariance,             // a b
  kForecastVariance,       // a^2
  kTruthVariance,          // b^2, the squared error of the climatology
  kPersistenceError,       // (p - y)^2
  kPersistenceCovariance,  // s b
  kPersistenceVariance,    // s^2
  kNumFieldMoments
};

/// Of each channel of each sample: float64 [B, C, kNumFieldMoments] on the host. Fields are [B, C, H, W], floating
/// point, of any device; `weights` float64 [H], of mean 1; `climatology` [C, H, W] or [B, C, H, W] is what anomalies
/// are against, undefined for 0.
at::Tensor field_moments(const at::Tensor& forecast, const at::Tensor& truth, const at::Tensor& persistence,
                         const at::Tensor& weights, const at::Tensor& climatology);

/// The scores that moments give, in the order of their names.
enum FieldScore : int64_t {
  kBias,             // kError
  kRmse,             // square root of kSquaredError
  kAcc,              // covariance over the root of both variances; 0 where an anomaly is the same everywhere
  kActivity,         // square root of kForecastVariance
  kClimatologyRmse,  // that of kTruthVariance: also the activity of the truth
  kPersistenceRmse,
  kPersistenceAcc,
  kNumFieldScores
};
inline constexpr std::array<const char*, kNumFieldScores> kFieldScoreNames = {
    "bias", "rmse", "acc", "activity", "climatology_rmse", "persistence_rmse", "persistence_acc"};

/// Of moments [..., kNumFieldMoments]: [..., kNumFieldScores].
at::Tensor field_scores(const at::Tensor& moments);

/// Figures of one pass over a validation set; each sample counted once. Fields are in normalised units.
struct Evaluation {
  int64_t samples = 0;
  double loss = 0.0;                     ///< mean over samples
  std::vector<double> rmse;              ///< by channel, latitude-weighted (forecast)
  std::vector<double> acc;               ///< by channel, anomaly correlation (forecast)
  std::vector<double> persistence_rmse;  ///< the same of the forecast yhat = x
  std::vector<double> persistence_acc;
  double top1 = 0.0;  ///< share of samples (classification)
  double top5 = 0.0;

  bool is_forecast() const { return !rmse.empty(); }
};

/// Sums over the samples that this rank evaluated.
class EvaluationSums {
 public:
  /// Forecast of `channels` fields; `weights` [H] have mean 1; `climatology` [C, H, W] is what anomalies are against,
  /// in normalised units, or undefined for the channel mean (0 in normalised units).
  static EvaluationSums forecast(int64_t channels, at::Tensor weights, at::Tensor climatology);
  static EvaluationSums classification();

  /// `loss_sum` is the sum of the sample losses; prediction, target, input [B, C, H, W].
  /// RMSE and ACC: means over samples of the field_scores() of each (S. Rasp et al., WeatherBench, JAMES 2020,
  /// section 4; docs/workload.md, "Loss and metrics").
  void add_forecast(double loss_sum, const at::Tensor& prediction, const at::Tensor& target, const at::Tensor& input);
  /// logits [B, K], labels [B].
  void add_classification(double loss_sum, const at::Tensor& logits, const at::Tensor& labels);

  /// float64, host: to be summed over the ranks that evaluated different samples (zeros elsewhere).
  const at::Tensor& sums() const { return sums_; }
  /// The figures of the reduced `sums`; zero samples give an Evaluation without samples.
  Evaluation finish(const at::Tensor& reduced_sums) const;

 private:
  explicit EvaluationSums(int64_t channels);

  int64_t channels_;
  at::Tensor weights_;      // [H], float64
  at::Tensor climatology_;  // [C, H, W] or undefined
  at::Tensor sums_;         // samples, loss, then 4 x channels or top-1, top-5
};

/// Text at the right end of `width` characters.
std::string right_text(const std::string& text, size_t width);
/// 0 of no values.
double mean_of(const std::vector<double>& values);

/// Loss and samples, then a line for each channel with RMSE and ACC beside persistence and their means; or loss, top-1
/// and top-5.
std::vector<std::string> table_lines(const Evaluation& figures, const std::vector<std::string>& channels);

/// {"samples", "loss", "rmse": {channel: value}, "acc", "persistence_rmse", "persistence_acc"}, or top1 and top5.
Json to_json(const Evaluation& figures, const std::vector<std::string>& channels);

}  // namespace vit_hybrid::train
