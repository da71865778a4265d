// The files and stores of generated weather: one HDF5 dataset, or an array a quantity as in NetCDF-4 and Zarr; and the
// statistics of its fields.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/generate/planetary_waves.h"
#include "data/hdf5/hdf5_writer.h"
#include "data/zarr/zarr_metadata.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

enum class WeatherFormat {
  kHdf5,    ///< a dataset `fields` (time, channel, latitude, longitude)
  kNetcdf,  ///< NetCDF-4: a variable a quantity, (time, latitude, longitude) or (time, level, latitude, longitude)
  kZarr,    ///< a Zarr store (v3) of the same arrays, a chunk a time
};

/// ".h5", ".nc" or ".zarr".
const char* ending_of(WeatherFormat format);

/// A field that does not change, of all files.
struct StaticField {
  std::string name;
  std::string unit;
  std::string standard_name;
  std::vector<float> values;  ///< [height, width]
};

/// Hours from the begin of 1900 to that of the year, of the usual calendar.
double begin_of_year(int64_t year);

/// What a file or store holds. Float32 all, coordinates by the conventions CF-1.8.
struct WeatherContent {
  std::vector<GeneratedChannel> channels;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<double> times;  ///< hours since the begin of 1900, one a row
  bool has_times = true;      ///< else they are not written
  Grid grid;                  ///< empty: not known, and not written
  std::vector<StaticField> statics;
  Hdf5Attributes attributes;  ///< of the file
  std::string simulation;     ///< kSimulation, of the times; empty: they go on in the next file
};

/// A new file or store under its temporary name, or without what makes it one, until finish().
class WeatherFile {
 public:
  virtual ~WeatherFile() = default;
  /// Writes rows from `first_row` on, a contiguous float32 tensor [rows, channels, height, width]. Local to the rank;
  /// each row by one.
  virtual void write(int64_t first_row, const at::Tensor& rows) = 0;
  /// Collective over the group; errors are agreed.
  virtual void finish() = 0;
};

/// Makes one with its coordinates and statics. Collective over `group`, which outlives it, with the same arguments on
/// all ranks; errors are agreed: Error(kCannotCreate), Error(kIo).
std::unique_ptr<WeatherFile> create_weather_file(WeatherFormat format, const comm::MpiGroup& group,
                                                 const std::string& path, WeatherContent content);

/// Makes a file with one dataset `fields` (time, channel, latitude, longitude) of all channels, with their names and
/// units, coordinates (none where times are not written) and statics; rows are still to be written, and the file to be
/// finished. Collective over `group` as create_weather_file().
std::unique_ptr<Hdf5Writer> create_fields_file(const comm::MpiGroup& group, const std::string& path,
                                               const WeatherContent& content);
inline constexpr const char* kFieldsName = "fields";

/// The arrays of the store that create_weather_file() makes.
std::vector<ZarrArray> zarr_arrays(const WeatherContent& content);

/// float32 tensors: means and stds [1, C, 1, 1], time_means [1, C, H, W].
struct StatisticsTensors {
  at::Tensor means;
  at::Tensor stds;
  at::Tensor time_means;
};

/// Moments of samples [channels, height, width], whose height x width values are the cells. What several objects hold
/// can be merged; the result depends on the order of additions and merges, but on nothing else.
class FieldStatistics {
 public:
  FieldStatistics(int64_t channels, int64_t height, int64_t width);

  void add(const float* sample);
  /// Adds what `other` holds: T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance",
  /// The American Statistician 37 (1983), equation (1.5).
  void merge(const FieldStatistics& other);

  int64_t num_samples() const { return num_samples_; }
  /// Mean over samples and cells.
  double mean(int64_t channel) const;
  /// Standard deviation over samples and cells (of the population: divided by their number).
  double deviation(int64_t channel) const;
  /// Mean over the samples at element `index` of [channels, cells].
  double time_mean(int64_t index) const;
  StatisticsTensors tensors() const;

  /// All of the state, to be sent to another rank, and its restoration there.
  std::vector<double> pack() const;
  void unpack(std::span<const double> packed);
  int64_t packed_size() const { return 1 + 2 * channels_ + channels_ * cells_; }

 private:
  /// The mean and the sum of squared deviations of `count` more values.
  void merge_channel(int64_t channel, double count, double mean, double squares);

  int64_t channels_;
  int64_t height_;
  int64_t width_;
  int64_t cells_;
  int64_t num_samples_ = 0;
  std::vector<double> means_;    // by channel
  std::vector<double> squares_;  // sums of squared deviations from the mean, by channel
  std::vector<double> sums_;     // over samples, by channel and cell
};

}  // namespace vit_hybrid::data
