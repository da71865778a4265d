// Moments of a plane in two passes, merged over planes, blocks and ranks; and the files of statistics.
#include "data/tools/row_statistics.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "data/datasets/npy.h"
#include "data/datasets/weather_dataset.h"
#include "data/datasets/year_files.h"
#include "data/reading/box_runs.h"
#include "data/tools/climatology.h"
#include "data/tools/tool_files.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/partition.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr size_t kPartialSums = 8;  // so that the loops are compiled to vectors and errors grow more slowly
constexpr int64_t kNumColors = 3;

// Sum over the values of function(value), of which `finite_only` says whether others count as 0.
template <class T, class Function>
double sum_finite(const T* values, int64_t count, const Function& function) {
  std::array<double, kPartialSums> sums{};
  const auto add = [&](double& sum, T value) {
    const auto x = static_cast<double>(value);
    sum += std::isfinite(x) ? function(x) : 0.0;
  };
  const int64_t whole = count - count % static_cast<int64_t>(kPartialSums);
  for (int64_t i = 0; i < whole; i += static_cast<int64_t>(kPartialSums)) {
    for (size_t part = 0; part < kPartialSums; ++part) {
      add(sums[part], values[i + static_cast<int64_t>(part)]);
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    add(sums[0], values[i]);
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template <class T>
ChannelMoments moments_of(const T* values, int64_t count) {
  ChannelMoments moments;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(values[i]);
    moments.num_nan += std::isnan(x) ? 1 : 0;
    moments.num_infinite += std::isinf(x) ? 1 : 0;
    moments.min = x < moments.min && std::isfinite(x) ? x : moments.min;
    moments.max = x > moments.max && std::isfinite(x) ? x : moments.max;
  }
  moments.count = count - moments.num_missing();
  if (moments.count > 0) {
    const auto number = static_cast<double>(moments.count);
    moments.mean = sum_finite(values, count, [](double x) { return x; }) / number;
    const double mean = moments.mean;
    moments.squares = sum_finite(values, count, [mean](double x) { return (x - mean) * (x - mean); });
  }
  return moments;
}

template <class T>
void add_planes(const at::Tensor& planes, std::vector<ChannelMoments>& moments) {
  const int64_t count = planes.size(1);
  const auto* values = planes.const_data_ptr<T>();
  for (auto& channel : moments) {
    channel.merge(moments_of(values, count));
    values += count;
  }
}

// A function of the data alone, so that the order of merging is too; enough for the ranks to share them evenly.
constexpr int64_t kMostBlocks = 1024;
constexpr int64_t kBufferBytes = int64_t{32} << 20;

class BlockSums {
 public:
  BlockSums(const RowSource& source, const RowSelection& rows, const StatisticsRequest& request)
      : source_(source),
        runs_(time_runs(source.files())),
        rows_(rows),
        request_(request),
        blocks_(cut(rows)),
        places_(channel_places(layout().shape, layout().type)),
        buffer_(make_buffer()),
        inputs_(request.pairs != nullptr ? at::empty_like(buffer_) : at::Tensor()),
        packed_(at::zeros({blocks_.parts(), places_.channels, ChannelMoments::kPacked}, at::kDouble)) {
    if (request.time_means == TimeMeans::kYes) {
      sums_ = at::zeros(buffer_[0].sizes(), at::kDouble);
      counts_ = at::zeros(buffer_[0].sizes(), at::kDouble);
    }
  }

  int64_t num_blocks() const { return blocks_.parts(); }

  void add_block(int64_t block) {
    std::vector<ChannelMoments> moments(static_cast<size_t>(places_.channels));
    const Range part = blocks_.part(block);
    for (int64_t first = part.begin; first < part.end; first += buffer_.size(0)) {
      add_rows({first, std::min(first + buffer_.size(0), part.end)}, moments);
    }
    auto* to = packed_.mutable_data_ptr<double>() + block * places_.channels * ChannelMoments::kPacked;
    for (const ChannelMoments& channel : moments) {
      channel.pack(to);
      to += ChannelMoments::kPacked;
    }
  }

  // Every block was summed by one rank; the others have zeros there.
  RowStatistics finish(const comm::MpiGroup& group) {
    const auto communicator = comm::make_communicator("data", group.duplicate(), at::kCPU);
    communicator->all_reduce(packed_, comm::ReduceOp::kSum).wait();
    RowStatistics result;
    result.channels.resize(static_cast<size_t>(places_.channels));
    const auto* from = packed_.const_data_ptr<double>();
    for (int64_t block = 0; block < num_blocks(); ++block) {
      for (ChannelMoments& channel : result.channels) {
        channel.merge(ChannelMoments::unpack(from));
        from += ChannelMoments::kPacked;
      }
    }
    if (sums_.defined()) {
      communicator->all_reduce(sums_, comm::ReduceOp::kSum).wait();
      communicator->all_reduce(counts_, comm::ReduceOp::kSum).wait();
      result.time_means = sums_.div_(counts_);
    }
    return result;
  }

 private:
  const ArrayLayout& layout() const { return source_.files().front().layout; }

  // Chunks are cut at where they begin only if all rows are wanted: a few of them lie in different ones.
  RowGroups cut(const RowSelection& rows) const {
    const int64_t unit = rows.count == rows.total ? rows_read_together(layout()) : 1;
    const int64_t num_units = (rows.count + unit - 1) / unit;
    return {rows.count, unit, std::clamp<int64_t>(num_units, 1, kMostBlocks)};
  }

  // At least the rows of a chunk.
  at::Tensor make_buffer() const {
    std::vector<int64_t> shape = layout().shape;
    const int64_t row_bytes = std::max<int64_t>(layout().row_bytes(), 1);
    shape.front() = std::min(std::max(kBufferBytes / row_bytes / blocks_.unit(), int64_t{1}) * blocks_.unit(),
                             std::max<int64_t>(blocks_.largest(), 1));
    return at::empty(shape, layout().type);
  }

  void add_rows(Range rows, std::vector<ChannelMoments>& moments) {
    std::vector<int64_t> numbers;
    std::vector<RowRead> reads;
    const auto read = [&](int64_t row, const at::Tensor& buffer) {
      const auto at = std::ssize(numbers) * layout().row_bytes();
      reads.push_back(source_.read_of(row, static_cast<char*>(buffer.data_ptr()) + at));
    };
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      int64_t row = 0;
      if (request_.pairs != nullptr) {
        row = request_.pairs->input_row(rows_.row(i));
        read(row, inputs_);
        row += request_.pairs->lead();
      } else {
        row = nth_row(runs_, rows_.row(i)).row;
      }
      read(row, buffer_);
      numbers.push_back(row);
    }
    source_.read(std::move(reads));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto number = static_cast<int64_t>(i);
      const at::Tensor row = buffer_[number];
      const auto wide = at::toOpMathType(row.scalar_type());
      add(numbers[i], request_.pairs != nullptr ? row.to(wide) - inputs_[number].to(wide) : row, moments);
    }
  }

  void add(int64_t number, const at::Tensor& row, std::vector<ChannelMoments>& moments) {
    int64_t missing_before = 0;
    for (const ChannelMoments& channel : moments) {
      missing_before += channel.num_missing();
    }
    add_row(row, places_, moments);
    int64_t missing = -missing_before;
    for (const ChannelMoments& channel : moments) {
      missing += channel.num_missing();
    }
    if (missing > 0 && request_.missing == MissingValues::kRefuse) {
      refuse(number, row);
    }
    if (sums_.defined()) {
      add_to_time_means(row, missing);
    }
  }

  void add_to_time_means(const at::Tensor& row, int64_t missing) {
    if (missing == 0) {
      sums_.add_(row);
      counts_.add_(1.0);
      return;
    }
    add_finite(row, sums_, counts_);
  }

  [[noreturn]] void refuse(int64_t number, const at::Tensor& row) const {
    const RowSource::Place place = source_.place(number);
    const at::Tensor values = row.to(at::kDouble).reshape({-1});
    const auto* first = values.const_data_ptr<double>();
    const auto* bad = std::find_if(first, first + values.numel(), [](double x) { return !std::isfinite(x); });
    const int64_t element = bad - first;
    const int64_t channel = element / places_.inner % places_.channels;
    const RowFile& file = source_.files()[static_cast<size_t>(place.file)];
    throw Error(ErrorClass::kBadData,
                str(file.where(channel), " is not finite (", *bad, ") at time ", place.row, ", channel ", channel,
                    ", element ", element % places_.inner, " of it"),
                "repair the file, or leave such values out with --skip-missing");
  }

  const RowSource& source_;
  const std::vector<Range> runs_;
  const RowSelection rows_;
  const StatisticsRequest& request_;
  const RowGroups blocks_;
  const ChannelPlaces places_;
  const at::Tensor buffer_;  // rows that are read together
  const at::Tensor inputs_;  // likewise, of pairs
  const at::Tensor packed_;
  at::Tensor sums_;
  at::Tensor counts_;
};

namespace fs = std::filesystem;

constexpr const char* kMeans = "global_means.npy";
constexpr const char* kDeviations = "global_stds.npy";
constexpr const char* kTimeMeans = "time_means.npy";
constexpr const char* kClimatology = "climatology.nc";

// The files that are written.
std::vector<const char*> names_of(const WriteStatsOptions& options) {
  std::vector<const char*> names = {kMeans, kDeviations};
  if (options.time_means) names.push_back(kTimeMeans);
  if (options.increments) names.insert(names.end(), {kIncrementMeans, kIncrementDeviations});
  if (options.climatology) names.push_back(kClimatology);
  return names;
}

void check_folder(const WriteStatsOptions& options) {
  std::error_code unknown;
  if (options.climatology && fs::equivalent(options.out, options.inputs.front(), unknown)) {
    throw Error(
        ErrorClass::kCannotCreate,
        str(options.out, " holds the data, beside which ", kClimatology, " would be read as one of their files"),
        "give another folder");
  }
  const std::vector<const char*> asked = names_of(options);
  for (const auto& [name, option] :
       {std::pair(kMeans, ""), std::pair(kDeviations, ""), std::pair(kTimeMeans, "--time-means"),
        std::pair(kIncrementMeans, "--increments"), std::pair(kIncrementDeviations, "--increments"),
        std::pair(kClimatology, "--climatology")}) {
    const std::string path = (fs::path(options.out) / name).string();
    refuse_existing(path, options.overwrite);
    std::error_code ignored;
    if (std::find(asked.begin(), asked.end(), name) == asked.end() && fs::exists(path, ignored)) {
      throw Error(ErrorClass::kCannotCreate, str(options.out, " also holds ", name, ", which would not be replaced"),
                  str("give ", option,
                      ", remove the file, or give another folder: it would be read beside the new statistics"));
    }
  }
}

// Those of the increments, and their `lead`.
TimePairs pairs_of(const RowSource& source, const WriteStatsOptions& options, Lead& lead) {
  lead = resolved_lead(asked_lead(options.lead), common_interval(source.files()));
  TimePairs pairs(time_runs(source.files()), lead.rows);
  if (pairs.size() == 0) {
    throw Error(ErrorClass::kBadData,
                str(options.inputs.front(), " holds no pair of times that are ", lead_text(lead), " apart"),
                "leave --increments out, or give a shorter --dt");
  }
  return pairs;
}

// Normalization divides by the deviation.
void check_channels(const WrittenStats& stats) {
  for (size_t c = 0; c < stats.channels.size(); ++c) {
    const ChannelMoments& channel = stats.channels[c];
    const std::string name = str("channel ", c, " (", stats.channel_names[c], ")");
    if (channel.count == 0) {
      throw Error(ErrorClass::kBadData, str(name, " has no finite value"), "leave the channel out of the data");
    }
    if (!std::isfinite(static_cast<float>(channel.deviation()))) {
      throw Error(
          ErrorClass::kBadData,
          str(name, " has values from ", channel.min, " to ", channel.max, ", whose deviation no float32 holds"),
          "mask the values that stand for missing ones, or leave the channel out of the data");
    }
    if (!(static_cast<float>(channel.deviation()) > 0.0f)) {
      throw Error(ErrorClass::kBadData, str(name, " is constant (", channel.mean, "): its deviation is 0"),
                  "training cannot normalize it; leave the channel out of the data");
    }
  }
}

at::Tensor by_channel(const std::vector<ChannelMoments>& channels, double (*value)(const ChannelMoments&)) {
  at::Tensor values = at::empty({1, std::ssize(channels), 1, 1}, at::kFloat);
  auto* to = values.mutable_data_ptr<float>();
  for (const ChannelMoments& channel : channels) {
    *to++ = static_cast<float>(value(channel));
  }
  return values;
}

// `channels`: the contents of kStatisticsChannels, or empty. The names are there only beside the statistics that they
// are of.
void write_files(const WriteStatsOptions& options, const RowStatistics& statistics, const WrittenStats& written,
                 const std::string& channels) {
  NpyFiles files;
  const auto add = [&](const char* name, const at::Tensor& values) {
    files.emplace_back((fs::path(options.out) / name).string(), values);
  };
  add(kMeans, by_channel(statistics.channels, [](const ChannelMoments& m) { return m.mean; }));
  add(kDeviations, by_channel(statistics.channels, [](const ChannelMoments& m) { return m.deviation(); }));
  if (options.time_means) {
    if (!at::isfinite(statistics.time_means).all().item<bool>()) {
      throw Error(ErrorClass::kBadData, "some element of the fields is missing at all times: it has no time mean",
                  "leave --time-means out");
    }
    add(kTimeMeans, statistics.time_means.to(at::kFloat).unsqueeze(0));
  }
  if (options.increments) {
    add(kIncrementMeans, by_channel(written.increments, [](const ChannelMoments& m) { return m.mean; }));
    add(kIncrementDeviations, by_channel(written.increments, [](const ChannelMoments& m) { return m.deviation(); }));
  }
  const std::string names = (fs::path(options.out) / kStatisticsChannels).string();
  const std::string lead = (fs::path(options.out) / kIncrementLead).string();
  replace_npy(files, {names, lead, (fs::path(options.out) / kClimatology).string()});
  const auto write = [](const std::string& path, const std::string& text) {
    if (!text.empty()) {
      WholeFile file(path);
      file.write(text);
      file.finish();
    }
  };
  write(names, channels);
  write(lead, options.increments ? increment_lead_text(written.lead) : "");
}

}  // namespace

void ChannelMoments::merge(const ChannelMoments& other) {
  num_nan += other.num_nan;
  num_infinite += other.num_infinite;
  if (other.count == 0) {
    return;
  }
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  const auto before = static_cast<double>(count);
  const auto more = static_cast<double>(other.count);
  const double difference = other.mean - mean;
  mean += difference * more / (before + more);
  squares += other.squares + difference * difference * before * more / (before + more);
  count += other.count;
}

double ChannelMoments::deviation() const {
  return std::sqrt(squares / static_cast<double>(count));
}

void ChannelMoments::pack(double* to) const {
  const std::array<double, kPacked> numbers{static_cast<double>(count),
                                            static_cast<double>(num_nan),
                                            static_cast<double>(num_infinite),
                                            min,
                                            max,
                                            mean,
                                            squares};
  std::copy(numbers.begin(), numbers.end(), to);
}

ChannelMoments ChannelMoments::unpack(const double* from) {
  return {static_cast<int64_t>(from[0]),
          static_cast<int64_t>(from[1]),
          static_cast<int64_t>(from[2]),
          from[3],
          from[4],
          from[5],
          from[6]};
}

ChannelPlaces channel_places(std::span<const int64_t> shape, at::ScalarType type) {
  const int64_t row = shape.empty() ? 1 : num_elements(shape.subspan(1));
  if (type == at::kByte && shape.size() == 4 && shape.back() == kNumColors) {
    return {row / kNumColors, kNumColors, 1};
  }
  if (shape.size() >= 3 && shape[1] > 0) {
    return {1, shape[1], row / shape[1]};
  }
  return {1, 1, row};
}

void add_row(const at::Tensor& row, const ChannelPlaces& places, std::vector<ChannelMoments>& moments) {
  VH_ASSERT(row.is_contiguous() && std::ssize(moments) == places.channels &&
                row.numel() == places.outer * places.channels * places.inner,
            str("a row of ", row.numel(), " values in ", places.channels, " channels"));
  const at::Tensor planes = row.reshape({places.outer, places.channels, places.inner})
                                .transpose(0, 1)
                                .reshape({places.channels, places.outer * places.inner})
                                .contiguous();
  if (planes.scalar_type() == at::kFloat) {
    add_planes<float>(planes, moments);
  } else {
    add_planes<double>(planes.to(at::kDouble), moments);
  }
}

void add_finite(const at::Tensor& row, const at::Tensor& sums, const at::Tensor& counts) {
  const at::Tensor finite = at::isfinite(row);
  sums.add_(at::where(finite, row, at::zeros_like(row)));
  counts.add_(finite);
}

void require_alike(const std::vector<RowFile>& files) {
  const RowFile& first = files.front();
  for (const RowFile& file : files) {
    const ArrayLayout& layout = file.layout;
    const std::string where = str(file.path, ": dataset '", layout.name, "' (", join(layout.shape), ")");
    if (layout.shape.size() != 4 || !c10::isFloatingType(layout.type) || layout.row_bytes() == 0) {
      throw Error(ErrorClass::kBadData, str(where, " is no field"),
                  "needed are floating-point values (time, channel, height, width)");
    }
    if (layout.type != first.layout.type ||
        !std::equal(layout.shape.begin() + 1, layout.shape.end(), first.layout.shape.begin() + 1)) {
      throw Error(ErrorClass::kBadData,
                  str(where, " differs from that of ", first.path, " (", join(first.layout.shape), ")"),
                  "all files have the same type, channels, height and width");
    }
  }
  given_grid(files);
}

RowSelection RowSelection::of(const RowSource& source, int64_t wanted) {
  const int64_t total = num_rows(time_runs(source.files()));
  return {total, wanted == 0 ? total : std::min(wanted, total)};
}

RowStatistics row_statistics(const comm::MpiGroup& group, const RowSource& source, const RowSelection& rows,
                             const StatisticsRequest& request) {
  BlockSums sums(source, rows, request);
  const Partition shares(sums.num_blocks(), group.size());
  const Range mine = shares.part(group.rank());
  Progress progress(str("reading ", rows.count, " rows of '", source.files().front().layout.name, "' in ",
                        source.files().front().path,
                        source.files().size() > 1 ? str(" and ", source.files().size() - 1, " more files") : ""),
                    shares.largest());
  for (int64_t done = 0; done < shares.largest(); ++done) {
    comm::agreed(group, [&] {
      if (done < mine.size() && rows.count > 0) {
        sums.add_block(mine.begin + done);
      }
    });
    progress.add();
  }
  return sums.finish(group);
}

WrittenStats write_stats(const comm::MpiGroup& group, const WriteStatsOptions& options) {
  std::vector<std::string> paths;
  std::optional<OutputFolder> folder;
  comm::agreed_on_rank_0(group, [&] {
    paths = list_weather_files(options.inputs.front());
    folder.emplace(options.out);
    check_folder(options);
  });
  const RowSource source(group, group.broadcast(paths, 0), options.fields, IoMode::kAuto);
  WrittenStats result;
  comm::agreed(group, [&] {
    require_alike(source.files());  // of two grids, statistics would be of both
    const RowFile& first = source.files().front();
    result.channel_names = channel_names(first.layout.shape[1], given_channels(source.files()), first.path);
  });
  const RowSelection rows = RowSelection::of(source, 0);
  result.num_samples = rows.count;
  comm::agreed(group, [&] {
    if (rows.count == 0) {
      throw Error(ErrorClass::kBadData, str(options.inputs.front(), " has no time that can be used"),
                  "its files have no rows, or those of the dates are missing");
    }
  });
  StatisticsRequest request;
  request.missing = options.skip_missing ? MissingValues::kCount : MissingValues::kRefuse;
  request.time_means = options.time_means ? TimeMeans::kYes : TimeMeans::kNo;
  // Before hours of reading.
  const TimePairs pairs =
      comm::agreed(group, [&] { return options.increments ? pairs_of(source, options, result.lead) : TimePairs(); });
  std::optional<Climatology> climatology;
  if (options.climatology) {
    climatology.emplace(group, source, ClimatologyOptions{options.climatology_days, request.missing});
    comm::agreed_on_rank_0(group, [&] { check_room(options.out, climatology->bytes()); });
    result.climatology = climatology->text();
  }
  const RowStatistics statistics = row_statistics(group, source, rows, request);
  result.channels = statistics.channels;
  if (options.increments) {
    request.time_means = TimeMeans::kNo;
    request.pairs = &pairs;
    result.increments = row_statistics(group, source, {pairs.size(), pairs.size()}, request).channels;
  }
  comm::agreed_on_rank_0(group, [&] { check_channels(result); });
  // Under its temporary name until the old files are gone.
  const std::unique_ptr<Hdf5Writer> days =
      climatology ? climatology->write((fs::path(options.out) / kClimatology).string(), result.channel_names) : nullptr;
  comm::agreed_on_rank_0(group, [&] {
    const std::string names = given_channels(source.files());
    write_files(options, statistics, result,
                names.empty() ? "" : channels_text(names, list_of_units(source.files().front())));
  });
  if (days != nullptr) {
    days->finish();
  }
  return result;
}

}  // namespace vit_hybrid::data
