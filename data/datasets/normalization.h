// Normalization of fields by channel: x <- (x - mean_c) / std_c, and where a value is not finite; IncrementTarget:
// models that predict how the state changes, not the next state itself.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "src/base/partition.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// Mean and standard deviation of each channel.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> std;

  /// Means 0 and deviations 1: values stay as they are.
  static Normalization identity(int64_t channels);
  /// From two .npy files, each of shape (1, C, 1, 1) or (C), read by rank 0 for all; of those of more channels the ones
  /// that statistics_rows() finds for `names` and `units`, with commas between them. Error(kMissingInput);
  /// Error(kBadData) for another shape, a mean that is not finite or a deviation that is not finite and above 0, and as
  /// statistics_rows(). Collective over `group`.
  static Normalization read(const comm::MpiGroup& group, const std::string& means, const std::string& stds,
                            int64_t channels, const std::string& names = {}, const std::string& units = {});
};

/// The file beside statistics that names their channels and, in a second line, their units (nothing where one is not
/// known), with commas between them.
inline constexpr const char* kStatisticsChannels = "channels.txt";
/// Its contents; `units` may be empty. Pure.
inline std::string channels_text(const std::string& names, const std::string& units) {
  return names + (units.empty() ? "" : "\n" + units) + "\n";
}

/// Files beside them, of the increments from a state to the one a lead behind it.
inline constexpr const char* kIncrementMeans = "time_diff_means.npy";
inline constexpr const char* kIncrementDeviations = "time_diff_stds.npy";
/// What that lead is: "24 hours", or "1 row" of data without dates.
inline constexpr const char* kIncrementLead = "time_diff_lead.txt";

/// The contents of kIncrementLead. Pure.
std::string increment_lead_text(const Lead& lead);
/// Error(kBadData) where the statistics of increments in `folder` say that they are over another lead; a warning where
/// they do not say it, as makani's. On this rank alone.
void require_increment_lead(const std::string& folder, const Lead& lead);

/// Where the channels `names` (with commas between them) are in the statistics of a .npy file, by the names beside it,
/// so that those of other channels, or in another order, are not taken for theirs; nothing where the file or the data
/// name none: then they are in order. Error(kBadData) for a channel that the statistics do not have, or have in another
/// unit than the one among `units` (of the data, likewise; may be empty).
struct StatisticsRows {
  int64_t total = 0;
  std::vector<int64_t> rows;
};
std::optional<StatisticsRows> statistics_rows(const std::string& path, const std::string& names,
                                              const std::string& units = {});

/// Normalizes a field [C, ...], in its type (16-bit types in float32), into `to` (float32, the same shape; may be
/// `field` itself). Returns the row-major index of the first element that is not finite, or of the first whose
/// normalized value is not; -1 if there is none.
int64_t normalize_field(const at::Tensor& field, const Normalization& normalization, const at::Tensor& to);

/// Values of a field in memory: kFloat, kDouble, kHalf or kBFloat16.
struct FieldValues {
  const void* values;
  at::ScalarType type;
};

/// Normalizes the elements `run` of a field whose channels have `channel_values` elements each, as normalize_field()
/// does, into the same elements of `to`: while a piece of a file that was just read is still in the cache.
int64_t normalize_run(FieldValues field, Range run, int64_t channel_values, const Normalization& normalization,
                      float* to);

/// What normalize_run() would return of the elements `run` of `field`, which stay as they are.
int64_t first_not_finite(const float* field, Range run, int64_t channel_values, const Normalization& normalization);

/// Of the channels c that are taken and predicted the target is y = (x(t + lead) - x(t) - m_c) / s_c, with normalized
/// states x and the mean m and deviation s of their increments (R. Lam et al., GraphCast, Science 2023, supplement
/// 2.2); of the channels behind them (diagnostics) it is x(t + lead).
class IncrementTarget {
 public:
  /// Targets are states.
  IncrementTarget() = default;
  /// Both in the units of the data, by channel: of increments over one lead, and of the states that these are of.
  IncrementTarget(const Normalization& increments, const Normalization& states);

  /// False where targets are states.
  explicit operator bool() const { return mean_.defined(); }
  /// For tensors of this kind.
  IncrementTarget to(c10::Device device, at::ScalarType type) const;

  /// y of the next states [B, C, H, W] and the present ones, of which the first channels count; a tensor of its own.
  at::Tensor target(const at::Tensor& next, const at::Tensor& present) const;
  /// The next states of a prediction y; a tensor of its own.
  at::Tensor state(const at::Tensor& prediction, const at::Tensor& present) const;

 private:
  at::Tensor mean_;  // [P, 1, 1]
  at::Tensor std_;
};

}  // namespace vit_hybrid::data
