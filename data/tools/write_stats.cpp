// Checks, the sums of all ranks, and the .npy files.
#include "data/tools/write_stats.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "data/datasets/npy.h"
#include "data/datasets/year_files.h"
#include "data/tools/hdf5_inputs.h"
#include "data/tools/output_place.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/output_file.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

constexpr const char* kMeans = "global_means.npy";
constexpr const char* kDeviations = "global_stds.npy";
constexpr const char* kTimeMeans = "time_means.npy";

void prepare_folder(const WriteStatsOptions& options) {
  make_output_folder(options.out);
  for (const char* name : {kMeans, kDeviations, kTimeMeans}) {
    refuse_existing((fs::path(options.out) / name).string(), options.overwrite);
  }
  std::error_code ignored;
  if (!options.time_means && fs::exists(fs::path(options.out) / kTimeMeans, ignored)) {
    throw Error(
        ErrorClass::kCannotCreate, str(options.out, " also holds ", kTimeMeans, ", which would not be replaced"),
        "give --time-means, remove the file, or give another folder: it would be read beside the new statistics");
  }
}

void check_files(const RowSource& source) {
  const RowFile& first = source.files().front();
  for (const RowFile& file : source.files()) {
    const Hdf5Layout& layout = file.layout;
    const std::string where = str(file.path, ": dataset '", source.dataset(), "' (", join(layout.shape), ")");
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
}

// Normalization divides by the deviation.
void check_channels(const WrittenStats& stats) {
  for (size_t c = 0; c < stats.channels.size(); ++c) {
    const ChannelMoments& channel = stats.channels[c];
    const std::string name = str("channel ", c, " (", stats.channel_names[c], ")");
    if (channel.count == 0) {
      throw Error(ErrorClass::kBadData, str(name, " has no finite value"), "leave the channel out of the data");
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

void write_files(const WriteStatsOptions& options, const RowStatistics& statistics) {
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
  replace_npy(files);
}

}  // namespace

WrittenStats write_stats(const comm::MpiGroup& group, const WriteStatsOptions& options) {
  std::vector<std::string> paths;
  comm::agreed_on_rank_0(group, [&] {
    paths = list_weather_files(options.inputs.front());
    prepare_folder(options);
  });
  const RowSource source(group, broadcast_lines(group, paths), options.dataset, "channels", IoMode::kAuto, {},
                         FileOrder::kByTime);
  WrittenStats result;
  comm::agreed(group, [&] {
    check_files(source);
    const RowFile& first = source.files().front();
    result.channel_names = channel_names(first.layout.shape[1], first.layout.attribute, first.path);
  });
  const RowSelection rows = RowSelection::of(source, 0);
  result.num_samples = rows.count;
  StatisticsRequest request;
  request.missing = options.skip_missing ? MissingValues::kCount : MissingValues::kRefuse;
  request.time_means = options.time_means ? TimeMeans::kYes : TimeMeans::kNo;
  const RowStatistics statistics = row_statistics(group, source, rows, request);
  result.channels = statistics.channels;
  comm::agreed_on_rank_0(group, [&] {
    check_channels(result);
    write_files(options, statistics);
  });
  return result;
}

}  // namespace vit_hybrid::data
