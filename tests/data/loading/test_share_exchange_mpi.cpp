// Channels dealt to the tensor ranks where a field is one chunk: joined batches are those of one rank that reads all,
// and together the ranks read each byte once.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "data/datasets/weather_dataset.h"
#include "data/generate/weather_files.h"
#include "data/loading/step_input.h"
#include "data/tools/repack_files.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
#include "tests/support/scratch_folder.h"

namespace vit_hybrid::data {
namespace {

constexpr int64_t kStoredTimes = 9, kLatitudePoints = 5, kLongitudePoints = 6;
const std::vector<GeneratedChannel> kStoredChannels = {{"tp", "tp", 0, "m"},
                                                       {"u10", "u10", 0, "m s**-1"},
                                                       {"sst", "sst", 0, "K"},
                                                       {"z500", "z", 500, "m**2 s**-2"},
                                                       {"z850", "z", 850, "m**2 s**-2"},
                                                       {"z1000", "z", 1000, "m**2 s**-2"},
                                                       {"t2m", "t2m", 0, "K"}};

at::Tensor values_of_store() {
  const at::Tensor numbers =
      at::arange(kStoredTimes * std::ssize(kStoredChannels) * kLatitudePoints * kLongitudePoints, at::kLong);
  return (numbers * 7919 % 100003)
      .to(at::kFloat)
      .reshape({kStoredTimes, std::ssize(kStoredChannels), kLatitudePoints, kLongitudePoints});
}

// Times, points and a static field with them.
void write_store(const comm::MpiGroup& group, WeatherFormat format, const std::string& path,
                 const at::Tensor& values = values_of_store()) {
  WeatherContent content;
  content.channels = kStoredChannels;
  content.height = kLatitudePoints;
  content.width = kLongitudePoints;
  for (int64_t time = 0; time < kStoredTimes; ++time) {
    content.times.push_back(begin_of_year(1990) + 6.0 * static_cast<double>(time));
  }
  for (int64_t i = 0; i < kLatitudePoints; ++i) {
    content.grid.latitudes.push_back(60.0 - 30.0 * static_cast<double>(i));
  }
  for (int64_t j = 0; j < kLongitudePoints; ++j) {
    content.grid.longitudes.push_back(60.0 * static_cast<double>(j));
  }
  std::vector<float> land(kLatitudePoints * kLongitudePoints, 0.25F);
  land.front() = 1.0F;
  content.statics = {{"lsm", "1", "land_binary_mask", land}};
  const auto file = create_weather_file(format, group, path, content);
  if (group.rank() == 0) {
    file->write(0, values);
  }
  file->finish();
}

struct DealtCase {
  const char* name;
  WeatherOptions options;
  bool has_bands = false;
  int64_t num_units = 0;  // of channels
};

WeatherOptions options_of_roles(const std::string& folder, const FieldRoles& roles, const std::string& channels) {
  WeatherOptions options{.folder = folder};
  options.roles = roles;
  options.fields.channels = channels.empty() ? "" : row_channels(roles, channels);
  // A name an entry, or with colons a level each.
  int64_t num_rows = channels.empty() ? std::ssize(kStoredChannels) : 0;
  for (const std::string& entry : names_in(options.fields.channels)) {
    num_rows += std::max<int64_t>(std::count(entry.begin(), entry.end(), ':'), 1);
  }
  Normalization normalization;
  for (int64_t channel = 0; channel < num_rows; ++channel) {
    normalization.mean.push_back(10.0F + static_cast<float>(channel));
    normalization.std.push_back(3.0F + static_cast<float>(channel));
  }
  options.normalization = normalization;
  return options;
}

void check_joined(const at::Tensor& joined, const at::Tensor& whole) {
  REQUIRE(joined.defined() == whole.defined());
  CHECK((!whole.defined() || at::equal(joined, whole)));
}

// The batches of a step from `dataset`, beside those of one rank that reads all from `whole`.
void check_dealt_batches(const comm::MpiGroup& group, mesh::DeviceMesh& mesh, const DealtCase& one,
                         const WeatherDataset& dataset, const WeatherDataset& whole, const Parts& parts) {
  const int64_t read_before = dataset.bytes_read(), read_before_by_whole = whole.bytes_read();
  const bool is_collective = one.options.io == IoMode::kCollective;
  const auto sampler = std::make_shared<DistributedSampler>(
      SamplerOptions{.num_samples = dataset.size(), .global_batch_size = 4, .seed = 3});
  {
    const ReplicaShare share{mesh.data().rank(), mesh.data().size(), 2};
    StepInput input(dataset, sampler, mesh.tensor(),
                    {share, 1, {}, {.parts = parts, .prefetch_depth = 3, .num_threads = 2}});
    const EpochPlan plan = sampler->epoch(0);
    const NextBatch next = input.open_step(plan, 0);
    const auto own = input.micro_batches(plan, 0);
    for (int64_t i = 0; i < most_micro_batches(plan, 0, share); ++i) {
      const bool has_samples = i < std::ssize(own);
      const std::vector<int64_t> samples = has_samples ? own[static_cast<size_t>(i)] : std::vector<int64_t>{};
      const Batch expected = has_samples || is_collective ? whole.read(samples, parts, plan.epoch()) : Batch();
      if (!has_samples) {
        continue;
      }
      const Batch batch = next();
      CHECK(batch.samples == samples);
      check_joined(batch.inputs, expected.inputs);
      check_joined(batch.states, expected.states);
      check_joined(batch.targets, expected.targets);
      CHECK(batch.states_in_inputs == expected.states_in_inputs);
      CHECK((batch.scaling == nullptr) == (expected.scaling == nullptr));
    }
  }
  if (!dataset.background_reads()) {
    return;
  }
  const int64_t read = dataset.bytes_read() - read_before, read_by_whole = whole.bytes_read() - read_before_by_whole;
  CHECK(group.sum(read) * mesh.tensor().size() == group.sum(read_by_whole));
  if (mesh.tensor().size() == 2 && one.num_units > 1 && parts.input && parts.target) {
    CHECK((read > 0) == (read_by_whole > 0));
  }
}

// At every tensor degree; the meshes and data sets are made once, which takes longer than the steps.
void check_dealt_case(const comm::MpiGroup& group, const std::vector<std::unique_ptr<mesh::DeviceMesh>>& meshes,
                      const DealtCase& one) {
  CAPTURE(std::string(one.name));
  const WeatherDataset dataset(group, one.options);
  const WeatherDataset whole(group, one.options);
  CHECK((dataset.cuts().row_unit == 1) == one.has_bands);
  Parts stored{.state = true};
  stored.form = ValueForm::kStored;
  for (const auto& mesh : meshes) {
    CAPTURE(mesh->tensor().size());
    for (const Parts& parts : {Parts{}, Parts{.state = true}, Parts{.target = false}, Parts{.input = false},
                               Parts{.input = false, .state = true}, stored}) {
      check_dealt_batches(group, *mesh, one, dataset, whole, parts);
    }
  }
}

void check_dealt_cases(const comm::MpiGroup& group) {
  const FieldRoles all = {
      .history = 3, .forcings = "cos_zenith,sst", .diagnostics = "tp", .statics = "cos_latitude,land_sea_mask"};
  const FieldRoles past = {.history = 2, .forcings = {}, .diagnostics = "tp"};
  std::vector<std::unique_ptr<mesh::DeviceMesh>> meshes;
  for (int tp = 1; tp <= group.size(); ++tp) {
    if (group.size() % tp == 0) {
      meshes.push_back(std::make_unique<mesh::DeviceMesh>(mesh::ParallelDims(group.size() / tp, tp, 1), group,
                                                          c10::Device(at::kCPU)));
    }
  }
  const testing::ScratchFolder folder(group);
  const std::string store = folder.file("a.zarr"), files = folder.file("files"), netcdf = folder.file("netcdf"),
                    planes = folder.file("planes"), repacked = folder.file("repacked");
  testing::on_rank_0(group, [&] {
    for (const std::string& made : {files, netcdf, planes}) {
      std::filesystem::create_directory(made);
    }
    std::vector<std::string> names;
    for (const GeneratedChannel& channel : kStoredChannels) {
      names.push_back(channel.name);
    }
    testing::write_hdf5_file(planes + "/1990.h5",
                             {{"fields", values_of_store(), {1, 1, kLatitudePoints, kLongitudePoints}, 2}});
    testing::write_scaled_file(files + "/1990.h5", values_of_store(), names);
  });
  write_store(group, WeatherFormat::kZarr, store);
  write_store(group, WeatherFormat::kNetcdf, netcdf + "/1990.nc");
  repack_files(group, {.inputs = {netcdf}, .out = repacked, .dataset = "z", .layout = RepackLayout::kSampleChunks},
               [](const std::string&) {});
  check_dealt_case(group, meshes, {"store, all roles", options_of_roles(store, all, "u10,t2m,z:500:850"), false, 5});
  check_dealt_case(group, meshes, {"store, plain", options_of_roles(store, {}, "t2m,z:500:1000,u10"), false, 3});
  check_dealt_case(group, meshes, {"store, one variable", options_of_roles(store, {}, "z:500:850:1000"), false, 1});
  check_dealt_case(group, meshes,
                   {"store, a chunk on both sides", options_of_roles(store, past, "z500,u10,z1000,t2m"), false, 3});
  check_dealt_case(group, meshes, {"netcdf", options_of_roles(netcdf, all, "u10,t2m,z:500:850"), true});
  for (const IoMode io : {IoMode::kDirect, IoMode::kIndependent, IoMode::kCollective}) {
    DealtCase named{"one chunk of all channels", options_of_roles(files, past, "u10,t2m,z500"), false, 1};
    DealtCase plain{"planes", options_of_roles(planes, {}, ""), false, 7};
    // Not all ranks want something of each variable.
    DealtCase mixed{"a variable of one chunk", options_of_roles(repacked, past, "u10,t2m,z:500:850"), false, 4};
    named.options.io = plain.options.io = mixed.options.io = io;
    check_dealt_case(group, meshes, mixed);
    check_dealt_case(group, meshes, named);
    check_dealt_case(group, meshes, plain);
  }
}

}  // namespace

TEST_CASE("share exchange: channels of one-chunk fields are dealt to the ranks of a replica") {
  const auto world = comm::MpiGroup::world();
  check_dealt_cases(world);
  if (world.size() == 4) {  // three ranks, which divide nothing here, and one
    check_dealt_cases(world.split(world.rank() < 3 ? 0 : 1));
  }
}

TEST_CASE("share exchange: a value that is not finite is named by the rank that reads it") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  at::Tensor values = values_of_store();
  values[1][4][3].data_ptr<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  write_store(group, WeatherFormat::kZarr, folder.file("a.zarr"), values);
  const WeatherDataset dataset(group, options_of_roles(folder.file("a.zarr"), {}, "t2m,u10,z:500:850"));
  const std::vector<int64_t> sample = {1};
  Parts parts;
  for (const ValueForm form : {ValueForm::kNormalized, ValueForm::kStored}) {
    parts.form = form;
    parts.share = FieldShare{.channels = {0, 3}};
    CHECK_NOTHROW(dataset.read(sample, parts, 0));
    parts.share = FieldShare{.channels = {2, 5}};
    try {
      dataset.read(sample, parts, 0);
      CHECK(false);
    } catch (const Error& error) {
      CHECK_MESSAGE(
          testing::contains(error.what(), "'z' is not finite (nan) at time 1, channel 3 (z850), row 3, column 2"),
          error.what());
    }
  }
  group.barrier();
}

}  // namespace vit_hybrid::data
