// WeatherTimes: the states of a weather data set one by one, on one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/datasets/normalization.h"
#include "data/datasets/weather_dataset.h"
#include "data/reading/row_source.h"

namespace vit_hybrid::data {

/// The times of all files, counted one file after the other from 0.
class WeatherTimes {
 public:
  /// Opens the files of options.folder on this process, which is alone in `self` (that outlives the object). Main
  /// thread. Error(kMissingInput), Error(kBadData).
  WeatherTimes(const comm::MpiGroup& self, const WeatherOptions& options);

  /// Where a time lies.
  struct Place {
    int64_t file = 0;
    int64_t time = 0;   ///< index in the file
    int64_t after = 0;  ///< times that follow it in the file
  };

  int64_t size() const;
  /// `index` is in [0, size()).
  Place place(int64_t index) const;
  const std::string& path(int64_t file) const { return source_->files()[static_cast<size_t>(file)].path; }
  const std::vector<int64_t>& shape() const { return shape_; }  ///< [C, H, W]
  const std::vector<std::string>& channel_names() const { return names_; }
  /// As the files name them, separated by commas; empty where none does.
  const std::string& given_channels() const { return given_channels_; }
  /// The points of the states, as far as the files give them.
  const Grid& grid() const { return grid_; }
  /// The unit of each channel; all empty where the files name none.
  const std::vector<std::string>& units() const { return units_; }
  const Normalization& normalization() const { return normalization_; }

  /// The state at `time` of a file: float32 [C, H, W], normalised. Error(kBadData) names a value that is not finite.
  at::Tensor read(int64_t file, int64_t time) const;

 private:
  void check_layouts();

  std::string dataset_;
  std::unique_ptr<RowSource> source_;
  std::vector<int64_t> shape_;
  std::vector<std::string> names_;
  std::string given_channels_;
  Grid grid_;
  std::vector<std::string> units_;
  Normalization normalization_;
};

/// The unit that a variable of ERA5 is stored in, by the first letters of its channel's name ("z500": "m2/s2"); empty
/// where the name is none of theirs.
std::string era5_unit(const std::string& channel);

/// Values [C, ...] in the units of the data from normalised ones, float32.
at::Tensor denormalize_field(const at::Tensor& field, const Normalization& normalization);

}  // namespace vit_hybrid::data
