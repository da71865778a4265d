// WeatherTimes: opening on one process, and rows as states.
#include "data/datasets/weather_times.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cctype>

#include "data/datasets/class_names.h"
#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_layout.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// Those of the attribute `units` if there is one for each channel, else those of ERA5's variables.
std::vector<std::string> units_of(const std::string& path, const std::string& dataset,
                                  const std::vector<std::string>& names) {
  std::vector<std::string> units = split_names(inspect_dataset(path, dataset, "units").attribute);
  if (units.size() != names.size()) {
    units.clear();
    std::transform(names.begin(), names.end(), std::back_inserter(units), &era5_unit);
  }
  return units;
}

}  // namespace

WeatherTimes::WeatherTimes(const comm::MpiGroup& self, const WeatherOptions& options) : dataset_(options.dataset) {
  VH_ASSERT(self.size() == 1, "times are read by one process");
  const MemoryScope scope(MemoryClass::kData);
  const IoMode io = options.io == IoMode::kCollective ? IoMode::kIndependent : options.io;
  source_ = std::make_unique<RowSource>(self, list_weather_files(options.folder), dataset_, "channels", io,
                                        MpiIoHints{}, FileOrder::kByTime);
  check_layouts();
  const RowFile& first = source_->files().front();
  given_channels_ = data::given_channels(source_->files());
  names_ = data::channel_names(shape_.front(), given_channels_, first.path);
  units_ = units_of(first.path, dataset_, names_);
  grid_ = given_grid(source_->files());
  normalization_ = normalization_of(self, options, shape_.front());
}

void WeatherTimes::check_layouts() {
  for (const RowFile& file : source_->files()) {
    const std::vector<int64_t>& shape = file.layout.shape;
    if (shape.size() != 4 || !c10::isFloatingType(file.layout.type) || file.layout.row_bytes() == 0) {
      throw Error(
          ErrorClass::kBadData,
          str(file.path, ": dataset '", dataset_, "' is ", c10::toString(file.layout.type), " (", join(shape), ")"),
          "needed are floating-point fields (time, channel, height, width)");
    }
    if (shape_.empty()) {
      shape_.assign(shape.begin() + 1, shape.end());
    }
    if (!std::equal(shape.begin() + 1, shape.end(), shape_.begin())) {
      throw Error(ErrorClass::kBadData,
                  str(file.path, ": states of shape (", join(std::vector<int64_t>(shape.begin() + 1, shape.end())),
                      "), but those of ", path(0), " have (", join(shape_), ")"),
                  "all files have the same channels, height and width");
    }
  }
}

int64_t WeatherTimes::size() const {
  int64_t sum = 0;
  for (const RowFile& file : source_->files()) {
    sum += file.layout.num_rows();
  }
  return sum;
}

WeatherTimes::Place WeatherTimes::place(int64_t index) const {
  VH_ASSERT(index >= 0 && index < size(), str("time ", index, " of ", size()));
  Place place{0, index, 0};
  int64_t times = source_->files().front().layout.num_rows();
  while (place.time >= times) {
    place.time -= times;
    ++place.file;
    times = source_->files()[static_cast<size_t>(place.file)].layout.num_rows();
  }
  place.after = times - 1 - place.time;
  return place;
}

at::Tensor WeatherTimes::read(int64_t file, int64_t time) const {
  const MemoryScope scope(MemoryClass::kData);
  const at::Tensor raw = at::empty(shape_, source_->files()[static_cast<size_t>(file)].layout.type);
  source_->read({{file, time, raw.data_ptr()}});
  const at::Tensor state = at::empty(shape_, at::kFloat);
  const int64_t bad = normalize_field(raw, normalization_, state);
  if (bad >= 0) {
    const int64_t plane = shape_[1] * shape_[2];
    throw Error(ErrorClass::kBadData,
                str(path(file), ": dataset '", dataset_, "' is not finite (", state.const_data_ptr<float>()[bad],
                    ") at time ", time, ", channel ", bad / plane, " (", names_[static_cast<size_t>(bad / plane)],
                    "), row ", bad % plane / shape_[2], ", column ", bad % shape_[2]),
                "values must be finite: repair the file or choose another start");
  }
  return state;
}

std::string era5_unit(const std::string& channel) {
  size_t letters = 0;
  while (letters < channel.size() && std::isalpha(static_cast<unsigned char>(channel[letters])) != 0) {
    ++letters;
  }
  const std::string variable = channel.substr(0, letters);
  const bool has_level = letters < channel.size();
  if (has_level && (variable == "u" || variable == "v")) return "m/s";
  if (has_level && variable == "t") return "K";
  if (has_level && variable == "z") return "m2/s2";
  if (has_level && variable == "r") return "%";
  if (variable == "sp" || variable == "msl") return "Pa";
  return variable == "tcwv" ? "kg/m2" : "";
}

at::Tensor denormalize_field(const at::Tensor& field, const Normalization& normalization) {
  at::Tensor out = field.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  for (int64_t c = 0; c < out.size(0); ++c) {
    out[c].mul_(normalization.std[static_cast<size_t>(c)]).add_(normalization.mean[static_cast<size_t>(c)]);
  }
  return out.to(at::kFloat);
}

}  // namespace vit_hybrid::data
