// Opening, checking, reading and normalizing of weather fields.
#include "data/weather_dataset.h"

#include <algorithm>

#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi_group.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr char kSeparator = '\n';  // of paths that travel in one text

std::vector<std::string> list_for_all(const comm::MpiGroup& group, const std::string& folder) {
  std::string text;
  comm::agreed_on_rank_0(group, [&] {
    for (const std::string& path : list_year_files(folder)) {
      text += path + kSeparator;
    }
  });
  text = group.broadcast(std::move(text), 0);
  std::vector<std::string> paths;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find(kSeparator, begin);
    paths.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return str("(", join(shape), ")");
}

}  // namespace

WeatherDataset::WeatherDataset(const comm::MpiGroup& group, const WeatherOptions& options) {
  const MemoryScope scope(MemoryClass::kData);
  source_ =
      std::make_unique<RowSource>(group, list_for_all(group, options.folder), options.dataset, "channels", options.io);
  comm::agreed(group, [&] {
    check_layouts();
    const RowFile& first = source_->files().front();
    shape_ = {first.layout.shape.begin() + 1, first.layout.shape.end()};
    channel_names_ = data::channel_names(shape_.front(), first.layout.attribute, first.path);
    std::vector<int64_t> num_times;
    for (const RowFile& file : source_->files()) {
      num_times.push_back(file.layout.num_rows());
    }
    pairs_ = YearPairs(num_times);
    if (size() < 1) {
      throw Error(ErrorClass::kBadData, str(options.folder, " holds no pair of consecutive times"),
                  "at least one file must have two times");
    }
  });
  normalization_ = options.global_means.empty()
                       ? Normalization::identity(shape_.front())
                       : Normalization::read(group, options.global_means, options.global_stds, shape_.front());
}

void WeatherDataset::check_layouts() const {
  const RowFile& first = source_->files().front();
  for (const RowFile& file : source_->files()) {
    const Hdf5Layout& layout = file.layout;
    const std::string where = str(file.path, ": dataset '", source_->dataset(), "' ");
    const std::string needed = "needed is (time, channel, height, width)";
    if (layout.shape.size() != 4) {
      throw Error(ErrorClass::kBadData, str(where, "has ", layout.shape.size(), " dims ", shape_text(layout.shape)),
                  needed);
    }
    if (!c10::isFloatingType(layout.type)) {
      throw Error(ErrorClass::kBadData, str(where, "holds integers"), "needed are 32-bit or 64-bit floats");
    }
    if (layout.row_bytes() == 0) {
      throw Error(ErrorClass::kBadData, str(where, "has the empty shape ", shape_text(layout.shape)), needed);
    }
    if (layout.type != first.layout.type ||
        !std::equal(layout.shape.begin() + 1, layout.shape.end(), first.layout.shape.begin() + 1)) {
      throw Error(ErrorClass::kBadData,
                  str(where, "is ", c10::toString(layout.type), " ", shape_text(layout.shape), ", but that of ",
                      first.path, " is ", c10::toString(first.layout.type), " ", shape_text(first.layout.shape)),
                  "all files have the same type, channels, height and width");
    }
  }
}

Batch WeatherDataset::read(std::span<const int64_t> samples, Parts parts, int64_t) const {
  Batch batch;
  batch.samples.assign(samples.begin(), samples.end());
  std::vector<RowRead> rows;
  if (parts.input) {
    batch.inputs = make_raw(static_cast<int64_t>(samples.size()));
    add_rows(rows, samples, 0, batch.inputs);
  }
  if (parts.target) {
    batch.targets = make_raw(static_cast<int64_t>(samples.size()));
    add_rows(rows, samples, 1, batch.targets);
  }
  source_->read(std::move(rows));
  if (parts.input) {
    batch.inputs = normalize(batch.inputs, samples, 0);
  }
  if (parts.target) {
    batch.targets = normalize(batch.targets, samples, 1);
  }
  return batch;
}

at::Tensor WeatherDataset::make_raw(int64_t num_samples) const {
  return pool_.take({num_samples, shape_[0], shape_[1], shape_[2]}, source_->files().front().layout.type);
}

void WeatherDataset::add_rows(std::vector<RowRead>& rows, std::span<const int64_t> samples, int64_t time_offset,
                              const at::Tensor& to) const {
  auto* bytes = static_cast<char*>(to.data_ptr());
  const int64_t row_bytes = source_->files().front().layout.row_bytes();
  for (const int64_t sample : samples) {
    VH_ASSERT(sample >= 0 && sample < size(), str("sample ", sample, " of ", size()));
    const YearPairs::Pair pair = pairs_.pair(sample);
    rows.push_back({pair.file, pair.time + time_offset, bytes});
    bytes += row_bytes;
  }
}

// In place where the values are float32 already.
at::Tensor WeatherDataset::normalize(const at::Tensor& raw, std::span<const int64_t> samples,
                                     int64_t time_offset) const {
  const at::Tensor result = raw.scalar_type() == at::kFloat ? raw : pool_.take(raw.sizes(), at::kFloat);
  for (int64_t i = 0; i < raw.size(0); ++i) {
    const int64_t bad = normalize_field(raw[i], normalization_, result[i]);
    if (bad >= 0) {
      const YearPairs::Pair pair = pairs_.pair(samples[static_cast<size_t>(i)]);
      fail_non_finite(pair, pair.time + time_offset, result[i], bad);
    }
  }
  return result;
}

void WeatherDataset::fail_non_finite(YearPairs::Pair pair, int64_t time, const at::Tensor& field,
                                     int64_t element) const {
  const int64_t width = shape_[2];
  const int64_t channel = element / (shape_[1] * width);
  throw Error(ErrorClass::kBadData,
              str(source_->files()[static_cast<size_t>(pair.file)].path, ": dataset '", source_->dataset(),
                  "' is not finite (", field.const_data_ptr<float>()[element], ") at time ", time, ", channel ",
                  channel, " (", channel_names_[static_cast<size_t>(channel)], "), row ", element / width % shape_[1],
                  ", column ", element % width),
              "values must be finite: repair the file or leave it out");
}

}  // namespace vit_hybrid::data
