// Scores of an evaluation: loss, RMSE and ACC by channel, top-1 and top-5: their sums, figures and report.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

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
  /// RMSE: mean over samples of sqrt(mean_ij w_i (yhat - y)^2). ACC: mean over samples of
  /// sum_ij w_i a b / sqrt(sum_ij w_i a^2 sum_ij w_i b^2) with the anomalies a of yhat and b of y (S. Rasp
  /// et al., WeatherBench, JAMES 2020, section 4; docs/workload.md, "Loss and metrics").
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
  at::Tensor weights_;      // [H, 1], float64
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
