// Channels as planes of variables, the coordinates that all formats have in common, and the two ways to store them;
// statistics.
#include "data/generate/weather_files.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <utility>
#include <variant>

#include "data/hdf5/hdf5_scales.h"
#include "data/reading/posix_file.h"
#include "data/zarr/zarr_writer.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr const char* kTimeDim = "time";
constexpr const char* kChannelDim = "channel";
constexpr const char* kLatitudeDim = "latitude";
constexpr const char* kLongitudeDim = "longitude";

/// A quantity: the channels that are its planes.
struct WeatherVariable {
  std::string name;
  std::string unit;
  std::vector<int64_t> channels;
  std::vector<double> levels;  ///< hPa; empty: none
  std::string level_dim;

  std::vector<std::string> dims() const {
    return levels.empty() ? std::vector<std::string>{kTimeDim, kLatitudeDim, kLongitudeDim}
                          : std::vector<std::string>{kTimeDim, level_dim, kLatitudeDim, kLongitudeDim};
  }
  /// Of so many rows.
  std::vector<int64_t> shape(int64_t rows, const WeatherContent& content) const {
    return levels.empty() ? std::vector<int64_t>{rows, content.height, content.width}
                          : std::vector<int64_t>{rows, std::ssize(levels), content.height, content.width};
  }
  /// Its part of rows [rows, channels, height, width].
  at::Tensor planes_of(const at::Tensor& rows, const WeatherContent& content) const {
    std::vector<at::Tensor> planes;
    for (const int64_t channel : channels) {
      planes.push_back(rows.narrow(1, channel, 1));
    }
    return at::cat(planes, 1).view(shape(rows.size(0), content));
  }
};

/// In the order in which the channels have them. Variables of the same levels have one dim of them.
std::vector<WeatherVariable> variables_of(const std::vector<GeneratedChannel>& channels) {
  std::vector<WeatherVariable> variables;
  for (int64_t i = 0; i < std::ssize(channels); ++i) {
    const GeneratedChannel& channel = channels[static_cast<size_t>(i)];
    auto found = std::find_if(variables.begin(), variables.end(),
                              [&](const WeatherVariable& known) { return known.name == channel.variable; });
    if (found == variables.end()) {
      found = variables.insert(variables.end(), {channel.variable, channel.unit, {}, {}, {}});
    }
    found->channels.push_back(i);
    if (channel.level > 0.0) {
      found->levels.push_back(channel.level);
    }
  }
  std::vector<std::vector<double>> known;
  for (WeatherVariable& variable : variables) {
    if (!variable.levels.empty()) {
      const auto same = std::find(known.begin(), known.end(), variable.levels);
      const int64_t number = same - known.begin() + 1;
      variable.level_dim = number == 1 ? "level" : str("level_", number);
      if (same == known.end()) {
        known.push_back(variable.levels);
      }
    }
  }
  return variables;
}

/// A dim and its coordinate.
struct WeatherDim {
  std::string name;
  int64_t size;
  std::vector<double> values;  ///< empty: there is no coordinate
  Hdf5Attributes attributes;
  std::vector<std::string> texts = {};  ///< names instead of values
};

std::vector<WeatherDim> dims_of(const WeatherContent& content, const std::vector<WeatherVariable>& variables) {
  using Texts = Hdf5Attributes;
  std::vector<WeatherDim> dims;
  dims.push_back({kTimeDim, std::ssize(content.times), content.has_times ? content.times : std::vector<double>{},
                  Texts{{"standard_name", "time"},
                        {"units", "hours since 1900-01-01 00:00:00"},
                        {"calendar", "proleptic_gregorian"},
                        {"axis", "T"}}});
  if (!content.simulation.empty()) {
    dims.back().attributes.emplace_back(kSimulation, content.simulation);
  }
  for (const WeatherVariable& variable : variables) {
    const bool is_known = variable.levels.empty() || std::any_of(dims.begin(), dims.end(), [&](const WeatherDim& dim) {
                            return dim.name == variable.level_dim;
                          });
    if (!is_known) {
      dims.push_back({variable.level_dim, std::ssize(variable.levels), variable.levels,
                      Texts{{"standard_name", "air_pressure"}, {"units", "hPa"}, {"positive", "down"}, {"axis", "Z"}}});
    }
  }
  dims.push_back({kLatitudeDim, content.height, content.grid.latitudes,
                  Texts{{"standard_name", "latitude"}, {"units", "degrees_north"}, {"axis", "Y"}}});
  dims.push_back({kLongitudeDim, content.width, content.grid.longitudes,
                  Texts{{"standard_name", "longitude"}, {"units", "degrees_east"}, {"axis", "X"}}});
  return dims;
}

Hdf5Attributes attributes_of(const StaticField& field) {
  return {{"units", field.unit}, {"standard_name", field.standard_name}};
}

at::Tensor list_of(const std::vector<double>& values) {
  const at::Tensor list = at::empty({std::ssize(values)}, at::kDouble);
  std::copy(values.begin(), values.end(), list.mutable_data_ptr<double>());
  return list;
}

at::Tensor field_of(const StaticField& field, const WeatherContent& content) {
  const at::Tensor values = at::empty({content.height, content.width});
  std::copy(field.values.begin(), field.values.end(), values.mutable_data_ptr<float>());
  return values;
}

/// A dataset and the names of its dims.
struct DimsOfDataset {
  std::string dataset;
  std::vector<std::string> names;
};

Hdf5DatasetSpec scale_of(const WeatherDim& dim) {
  if (!dim.texts.empty()) {
    return {.name = dim.name, .shape = {dim.size}, .texts = dim.texts};
  }
  if (!dim.values.empty()) {
    return {dim.name, {dim.size}, at::kDouble, dim.attributes};
  }
  // What netCDF-4 writes of a dimension that is no variable has no values, and this name.
  char name[80];
  std::snprintf(name, sizeof name, "This is a netCDF dimension but not a netCDF variable. %10lld",
                static_cast<long long>(dim.size));
  return {dim.name, {dim.size}, at::kFloat, {{"NAME", std::string(name)}}};
}

std::vector<Hdf5Scaled> scaled(const std::vector<DimsOfDataset>& datasets) {
  std::vector<Hdf5Scaled> all;
  for (const DimsOfDataset& of : datasets) {
    Hdf5Scaled& one = all.emplace_back(Hdf5Scaled{of.dataset, {}});
    for (const std::string& name : of.names) {
      one.scales.push_back({"/" + name});
    }
  }
  return all;
}

/// A file of the datasets `specs`, whose dims `used` names, with the scales of `dims` (none: the file has none) and the
/// statics of `content`.
std::unique_ptr<Hdf5Writer> create_scaled_file(const comm::MpiGroup& group, const std::string& path,
                                               const WeatherContent& content, const std::vector<WeatherDim>& dims,
                                               std::vector<Hdf5DatasetSpec> specs, std::vector<DimsOfDataset> used) {
  for (const StaticField& field : content.statics) {
    specs.push_back({field.name, {content.height, content.width}, at::kFloat, attributes_of(field)});
    used.push_back({field.name, {kLatitudeDim, kLongitudeDim}});
  }
  std::transform(dims.begin(), dims.end(), std::back_inserter(specs), &scale_of);
  auto file = std::make_unique<Hdf5Writer>(group, path, specs, content.attributes);
  comm::agreed_on_rank_0(group, [&] {
    for (const WeatherDim& dim : dims) {
      if (!dim.values.empty()) {
        file->write(dim.name, std::array<int64_t, 1>{0}, list_of(dim.values));
      }
    }
    for (const StaticField& field : content.statics) {
      file->write(field.name, std::array<int64_t, 2>{0, 0}, field_of(field, content));
    }
    if (!dims.empty()) {
      attach_hdf5_scales(temporary_name(path), scaled(used));
    }
  });
  return file;
}

/// One dataset of all channels.
class Hdf5Fields : public WeatherFile {
 public:
  Hdf5Fields(const comm::MpiGroup& group, const std::string& path, const WeatherContent& content)
      : file_(create_fields_file(group, path, content)) {}

  void write(int64_t first_row, const at::Tensor& rows) override {
    file_->write(kFieldsName, std::array<int64_t, 4>{first_row, 0, 0, 0}, rows);
  }
  void finish() override { file_->finish(); }

 private:
  std::unique_ptr<Hdf5Writer> file_;
};

/// A variable a quantity, by the data model of netCDF-4.
class NetcdfVariables : public WeatherFile {
 public:
  NetcdfVariables(const comm::MpiGroup& group, const std::string& path, WeatherContent content)
      : content_(std::move(content)), variables_(variables_of(content_.channels)) {
    std::vector<Hdf5DatasetSpec> specs;
    std::vector<DimsOfDataset> used;
    for (const WeatherVariable& variable : variables_) {
      specs.push_back({variable.name,
                       variable.shape(std::ssize(content_.times), content_),
                       at::kFloat,
                       {{"units", variable.unit}}});
      used.push_back({variable.name, variable.dims()});
    }
    file_ = create_scaled_file(group, path, content_, dims_of(content_, variables_), std::move(specs), std::move(used));
  }

  void write(int64_t first_row, const at::Tensor& rows) override {
    for (const WeatherVariable& variable : variables_) {
      const at::Tensor planes = variable.planes_of(rows, content_);
      std::vector<int64_t> start(static_cast<size_t>(planes.dim()), 0);
      start.front() = first_row;
      file_->write(variable.name, start, planes);
    }
  }
  void finish() override { file_->finish(); }

 private:
  WeatherContent content_;
  std::vector<WeatherVariable> variables_;
  std::unique_ptr<Hdf5Writer> file_;
};

ZarrJson json_of(const Hdf5Attributes& attributes) {
  ZarrJson json = ZarrJson::object();
  for (const auto& [name, value] : attributes) {
    std::visit([&, key = name](const auto& known) { json[key] = known; }, value);
  }
  return json;
}

class ZarrVariables : public WeatherFile {
 public:
  ZarrVariables(const comm::MpiGroup& group, const std::string& path, WeatherContent content)
      : content_(std::move(content)),
        variables_(variables_of(content_.channels)),
        store_(group, path, zarr_arrays(content_), json_of(content_.attributes)) {
    comm::agreed_on_rank_0(group, [&] {
      for (const WeatherDim& dim : dims_of(content_, variables_)) {
        if (!dim.values.empty()) {
          store_.write(dim.name, std::array<int64_t, 1>{0}, list_of(dim.values));
        }
      }
      for (const StaticField& field : content_.statics) {
        store_.write(field.name, std::array<int64_t, 2>{0, 0}, field_of(field, content_));
      }
    });
  }

  void write(int64_t first_row, const at::Tensor& rows) override {
    for (int64_t row = 0; row < rows.size(0); ++row) {
      for (const WeatherVariable& variable : variables_) {
        std::vector<int64_t> index(variable.dims().size(), 0);
        index.front() = first_row + row;
        store_.write(variable.name, index, variable.planes_of(rows.narrow(0, row, 1), content_));
      }
    }
  }
  void finish() override { store_.finish(); }

 private:
  WeatherContent content_;
  std::vector<WeatherVariable> variables_;
  ZarrWriter store_;
};

}  // namespace

double begin_of_year(int64_t year) {
  using namespace std::chrono;
  const auto begin = [](int64_t of) { return sys_days{std::chrono::year{static_cast<int>(of)} / January / 1}; };
  constexpr int64_t kEpoch = 1900;
  return static_cast<double>(duration_cast<hours>(begin(year) - begin(kEpoch)).count());
}

const char* ending_of(WeatherFormat format) {
  switch (format) {
    case WeatherFormat::kHdf5:
      return ".h5";
    case WeatherFormat::kNetcdf:
      return ".nc";
    case WeatherFormat::kZarr:
      break;
  }
  return ".zarr";
}

std::unique_ptr<Hdf5Writer> create_fields_file(const comm::MpiGroup& group, const std::string& path,
                                               const WeatherContent& content) {
  std::vector<std::string> names, units;
  for (const GeneratedChannel& channel : content.channels) {
    names.push_back(channel.name);
    units.push_back(channel.unit);
  }
  std::vector<WeatherDim> dims;
  if (content.has_times) {
    dims = dims_of(content, {});
    dims.push_back({.name = kChannelDim, .size = std::ssize(names), .values = {}, .attributes = {}, .texts = names});
  }
  const Hdf5DatasetSpec fields{kFieldsName,
                               {std::ssize(content.times), std::ssize(names), content.height, content.width},
                               at::kFloat,
                               {{"channels", join(names, ",")}, {"units", join(units, ",")}}};
  return create_scaled_file(group, path, content, dims, {fields},
                            {{kFieldsName, {kTimeDim, kChannelDim, kLatitudeDim, kLongitudeDim}}});
}

std::vector<ZarrArray> zarr_arrays(const WeatherContent& content) {
  const std::vector<WeatherVariable> variables = variables_of(content.channels);
  std::vector<ZarrArray> arrays;
  for (const WeatherVariable& variable : variables) {
    arrays.push_back(zarr_array_to_write(variable.name, variable.shape(std::ssize(content.times), content),
                                         variable.shape(1, content), variable.dims(), at::kFloat,
                                         {{"units", variable.unit}}));
  }
  for (const WeatherDim& dim : dims_of(content, variables)) {
    if (!dim.values.empty()) {
      arrays.push_back(
          zarr_array_to_write(dim.name, {dim.size}, {dim.size}, {dim.name}, at::kDouble, json_of(dim.attributes)));
    }
  }
  for (const StaticField& field : content.statics) {
    const std::vector<int64_t> shape = {content.height, content.width};
    arrays.push_back(zarr_array_to_write(field.name, shape, shape, {kLatitudeDim, kLongitudeDim}, at::kFloat,
                                         json_of(attributes_of(field))));
  }
  return arrays;
}

std::unique_ptr<WeatherFile> create_weather_file(WeatherFormat format, const comm::MpiGroup& group,
                                                 const std::string& path, WeatherContent content) {
  switch (format) {
    case WeatherFormat::kHdf5:
      return std::make_unique<Hdf5Fields>(group, path, content);
    case WeatherFormat::kNetcdf:
      return std::make_unique<NetcdfVariables>(group, path, std::move(content));
    case WeatherFormat::kZarr:
      break;
  }
  return std::make_unique<ZarrVariables>(group, path, std::move(content));
}

// Statistics: means and sums of squared deviations, merged.

namespace {
size_t at(int64_t index) {
  return static_cast<size_t>(index);
}
}  // namespace

FieldStatistics::FieldStatistics(int64_t channels, int64_t height, int64_t width)
    : channels_(channels),
      height_(height),
      width_(width),
      cells_(height * width),
      means_(at(channels), 0.0),
      squares_(at(channels), 0.0),
      sums_(at(channels * cells_), 0.0) {}

void FieldStatistics::merge_channel(int64_t channel, double count, double mean, double squares) {
  const double before = static_cast<double>(num_samples_ * cells_);
  const double difference = mean - means_[at(channel)];
  means_[at(channel)] += difference * count / (before + count);
  squares_[at(channel)] += squares + difference * difference * before * count / (before + count);
}

void FieldStatistics::add(const float* sample) {
  const double count = static_cast<double>(cells_);
  for (int64_t channel = 0; channel < channels_; ++channel) {
    const float* values = sample + channel * cells_;
    double* sums = sums_.data() + channel * cells_;
    double sum = 0.0;
    for (int64_t i = 0; i < cells_; ++i) {
      sum += values[i];
      sums[i] += values[i];
    }
    const double mean = sum / count;
    double squares = 0.0;
    for (int64_t i = 0; i < cells_; ++i) {
      squares += (values[i] - mean) * (values[i] - mean);
    }
    merge_channel(channel, count, mean, squares);
  }
  ++num_samples_;
}

void FieldStatistics::merge(const FieldStatistics& other) {
  VH_ASSERT(other.channels_ == channels_ && other.cells_ == cells_,
            str("statistics of ", other.channels_, " x ", other.cells_));
  if (other.num_samples_ == 0) return;
  const double count = static_cast<double>(other.num_samples_ * cells_);
  for (int64_t channel = 0; channel < channels_; ++channel) {
    merge_channel(channel, count, other.means_[at(channel)], other.squares_[at(channel)]);
  }
  for (size_t i = 0; i < sums_.size(); ++i) {
    sums_[i] += other.sums_[i];
  }
  num_samples_ += other.num_samples_;
}

double FieldStatistics::mean(int64_t channel) const {
  return means_[at(channel)];
}

double FieldStatistics::deviation(int64_t channel) const {
  return std::sqrt(squares_[at(channel)] / static_cast<double>(num_samples_ * cells_));
}

double FieldStatistics::time_mean(int64_t index) const {
  return sums_[at(index)] / static_cast<double>(num_samples_);
}

std::vector<double> FieldStatistics::pack() const {
  std::vector<double> packed{static_cast<double>(num_samples_)};
  for (const auto* part : {&means_, &squares_, &sums_}) {
    packed.insert(packed.end(), part->begin(), part->end());
  }
  return packed;
}

void FieldStatistics::unpack(std::span<const double> packed) {
  VH_ASSERT(std::ssize(packed) == packed_size(), str("packed statistics of ", packed.size(), " numbers"));
  num_samples_ = static_cast<int64_t>(packed.front());
  auto from = packed.begin() + 1;
  for (auto* part : {&means_, &squares_, &sums_}) {
    std::copy_n(from, part->size(), part->begin());
    from += static_cast<std::ptrdiff_t>(part->size());
  }
}

StatisticsTensors FieldStatistics::tensors() const {
  StatisticsTensors tensors{at::empty({1, channels_, 1, 1}), at::empty({1, channels_, 1, 1}),
                            at::empty({1, channels_, height_, width_})};
  auto* means = tensors.means.mutable_data_ptr<float>();
  auto* stds = tensors.stds.mutable_data_ptr<float>();
  auto* time_means = tensors.time_means.mutable_data_ptr<float>();
  for (int64_t channel = 0; channel < channels_; ++channel) {
    means[channel] = static_cast<float>(mean(channel));
    stds[channel] = static_cast<float>(deviation(channel));
  }
  for (int64_t i = 0; i < tensors.time_means.numel(); ++i) {
    time_means[i] = static_cast<float>(time_mean(i));
  }
  return tensors;
}

}  // namespace vit_hybrid::data
