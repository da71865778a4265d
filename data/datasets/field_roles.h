// FieldRoles: which channels of the weather a model takes and which it gives; DerivedInputs: those that it takes beside
// the data's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/datasets/forcings.h"
#include "data/datasets/normalization.h"
#include "data/reading/row_reader.h"
#include "src/base/partition.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// What is not simply taken and predicted, in the words of anemoi (S. Lang et al., AIFS, arXiv:2406.01465, section 2):
/// prognostic channels are both, forcings are taken alone, diagnostics predicted alone. Lists of names with commas.
struct FieldRoles {
  int64_t history = 1;           ///< states that are taken: the present one and those before it, one lead apart
  std::string forcings = {};     ///< computed ones (forcings.h), and channels of the data
  std::string diagnostics = {};  ///< channels of the data
  std::string statics = {};      ///< fields that do not change: of place (forcings.h), and variables of files
  std::string static_data = {};  ///< file or store with these variables; empty: the data's of the first time
};

/// The forcings that are channels of the data, with commas between them.
std::string forcings_of_data(const FieldRoles& roles);

/// The channels of a row of the data: forcings of the data, then the prognostic `channels`, then diagnostics. Error
/// (kUsage) where there are forcings of the data or diagnostics and `channels` is empty.
std::string row_channels(const FieldRoles& roles, const std::string& channels);

/// One line that tells models with other inputs or outputs apart, empty for plain states: "history 3, forcings sst,
/// cos_zenith". Pure.
std::string roles_text(const FieldRoles& roles);

/// Where the channels of a sample come from.
///   row of the data: forcings F, prognostic P, diagnostic D
///   input:           F and P at t, P at t - lead, ..., P at t - (history - 1) lead, computed forcings at t, static
///   fields target:          P and D at t + lead
struct SampleChannels {
  int64_t forcings = 0;    ///< F, of the data
  int64_t prognostic = 0;  ///< P
  int64_t diagnostic = 0;  ///< D
  int64_t history = 1;
  int64_t computed = 0;  ///< forcings that are computed
  int64_t statics = 0;   ///< channels of static fields

  /// Of a row.
  Range taken() const { return {0, forcings + prognostic}; }
  Range state() const { return {forcings, forcings + prognostic}; }
  Range predicted() const { return {forcings, row()}; }
  int64_t row() const { return forcings + prognostic + diagnostic; }
  /// Of an input: those of the state `age` leads before t, of all states, of what is computed.
  Range past_state(int64_t age) const { return {forcings + prognostic * age, forcings + prognostic * (age + 1)}; }
  Range states() const { return {forcings, forcings + prognostic * history}; }
  int64_t derived() const { return computed + statics; }
  int64_t inputs() const { return states().end + derived(); }
  int64_t outputs() const { return prognostic + diagnostic; }
};

/// Those of rows with `row_channels` channels. Error(kUsage) where none is left to be predicted from itself, and for
/// names in FieldRoles that mean nothing. Pure.
SampleChannels sample_channels(const FieldRoles& roles, int64_t row_channels);

/// Channels of rows of which `outputs` are predicted.
int64_t num_row_channels(const FieldRoles& roles, int64_t outputs);

/// Statistics of some of the channels.
Normalization part_of(const Normalization& normalization, Range channels);

/// The inputs that are no channels of the data: computed forcings, then static fields.
class DerivedInputs {
 public:
  /// Nothing.
  DerivedInputs() = default;
  /// For the rows of `files`, fields of `shape` (height, width) on `grid`; `variables` as of FieldQuery. Collective
  /// over `group`, files are read by rank 0; errors are agreed: Error(kBadData) where the data have no dates or points,
  /// which what is asked for depends on, and as read_static_fields()'s.
  DerivedInputs(const comm::MpiGroup& group, const FieldRoles& roles, const std::string& variables,
                const std::vector<RowFile>& files, const Grid& grid, const std::vector<int64_t>& shape);

  /// Computed ones.
  int64_t num_computed() const { return std::ssize(computed_); }
  /// Whether computed ones change with time.
  bool depends_on_time() const;
  /// When a row is (counted over all files), in seconds since the begin of 1970 in the data's calendar; 0 where nothing
  /// depends on it.
  double seconds_of(int64_t row) const;
  /// Computed ones at a time: [num_computed(), rows, width]. Any thread.
  void compute(double seconds, Range rows, float* to) const;
  /// All of them: [computed and static ones, rows, width]. Any thread.
  void write(double seconds, Range rows, float* to) const;

 private:
  std::vector<Forcing> computed_;
  std::vector<double> seconds_;  // of the rows; empty: nothing depends on them
  std::string calendar_;
  Grid grid_;
  int64_t width_ = 0;
  at::Tensor statics_;  // [channels, H, W] float32, or undefined
};

}  // namespace vit_hybrid::data
