// LeadSums: the scores of many forecasts by lead and channel, and their report.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/datasets/normalization.h"
#include "src/report/metrics_log.h"
#include "src/report/scores.h"

namespace vit_hybrid::train {

/// Whose definitions scores follow.
enum class ScoreRules {
  /// The reference workload's (docs/workload.md): the mean over the starts of each forecast's score, rows weighed by
  /// cos(latitude), in standard deviations of each channel.
  kReference,
  /// WeatherBench's (S. Rasp et al., WeatherBench 2, JAMES 2024, section 3, as WeatherBench-X computes them): the score
  /// of the moments' means over the starts (the root after the mean, ACC a ratio of means), rows weighed by
  /// the areas of their cells, in the units of the data.
  kWeatherBench
};

/// A lead that forecasts are scored at.
struct ScoredLead {
  int64_t steps = 1;   ///< applications of the model
  double hours = 0.0;  ///< 0: not known
};

/// What becomes of the forecasts of one lead.
struct LeadFigures {
  ScoredLead lead;
  int64_t samples = 0;        ///< starts
  at::Tensor scores;          ///< float64 [C, kNumFieldScores]
  at::Tensor spectrum;        ///< float64 [C, W / 2 + 1]: zonal_power() of the forecasts, the mean over the starts
  at::Tensor truth_spectrum;  ///< the same of the truth
};

/// The power of a field's waves along its rows: of a field [C, H, W] float64 [C, W / 2 + 1]; the square of the mean,
/// then of each wavenumber that of its sine and cosine; mean over the rows, which `weights` [H] of mean 1 weigh. All
/// wavenumbers together have the weighted mean square of the field (Parseval). Values are `units`'s, of normalised
/// fields.
at::Tensor zonal_power(const at::Tensor& field, const at::Tensor& weights, const data::Normalization& units);

/// Sums over the forecasts that this rank scored.
class LeadSums {
 public:
  /// Rows at the latitudes of `grid`. `normalization` is that of the fields' channels.
  LeadSums(ScoreRules rules, std::vector<ScoredLead> leads, const data::Grid& grid,
           const data::Normalization& normalization, int64_t height, int64_t width);

  /// The zonal_power() of a field [C, H, W] by these rules.
  at::Tensor power(const at::Tensor& field) const { return zonal_power(field, weights_, units_); }
  /// At lead number `lead`: normalised fields and climatology as of field_moments(), `truth_power` [B, C, W / 2 + 1]
  /// the power() of the truth, which many leads have.
  void add(size_t lead, const at::Tensor& forecast, const at::Tensor& truth, const at::Tensor& truth_power,
           const at::Tensor& persistence, const at::Tensor& climatology);
  /// float64, host: to be summed over the ranks.
  const at::Tensor& sums() const { return sums_; }
  /// The figures of the reduced `sums`, by lead.
  std::vector<LeadFigures> finish(const at::Tensor& reduced_sums) const;

 private:
  at::Tensor part(const at::Tensor& sums, size_t lead, int64_t begin, int64_t columns) const;

  ScoreRules rules_;
  std::vector<ScoredLead> leads_;
  data::Normalization units_;  // of the figures
  at::Tensor weights_;
  int64_t channels_;
  int64_t columns_;      // of each channel: moments or scores, then two spectra
  int64_t wavenumbers_;  // in a spectrum
  at::Tensor sums_;      // [leads, 1 + channels * columns]: the samples first
};

/// "6 h", or "3 steps" where the hours are not known.
std::string lead_text(const ScoredLead& lead);

/// A table for each lead: of each channel RMSE, ACC, bias and activity beside persistence and climatology.
std::vector<std::string> table_lines(const std::vector<LeadFigures>& figures, const std::vector<std::string>& channels);

/// [{"steps", "hours", "samples", "rmse": {channel: value}, ..., "spectrum": {channel: [values]}, "truth_spectrum"}].
Json to_json(const std::vector<LeadFigures>& figures, const std::vector<std::string>& channels);

}  // namespace vit_hybrid::train
