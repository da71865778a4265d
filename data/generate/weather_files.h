// The files and stores of generated weather: one HDF5 dataset, or an array a quantity as in NetCDF-4 and Zarr.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/generate/wave_channels.h"
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

}  // namespace vit_hybrid::data
