// Small weather files and models to use on them.
#include "tests/support/model_use_harness.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <filesystem>
#include <fstream>

#include "data/datasets/npy.h"
#include "src/base/log.h"
#include "src/checkpoint/format.h"
#include "src/config/config_text.h"
#include "src/train/saving/checkpointer.h"
#include "src/train/trainer.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/vit_harness.h"

namespace vit_hybrid::testing {

namespace {

at::Tensor per_channel(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).reshape({1, 3, 1, 1});
}

}  // namespace

Quiet::Quiet() {
  set_log_speaker(false);
}

Quiet::~Quiet() {
  set_log_speaker(true);
}

const std::vector<std::string>& weather_channels() {
  static const std::vector<std::string> names = {"u10", "z500", "r500"};
  return names;
}

at::Tensor weather_means() {
  return per_channel({2.0, -50.0, 0.001});
}

at::Tensor weather_stds() {
  return per_channel({3.0, 20.0, 0.0005});
}

at::Tensor weather_fields(uint64_t file) {
  return (normal_tensor({kWeatherTimes, 3, 12, 20}, file) * weather_stds() + weather_means()).to(at::kFloat);
}

void write_weather(const comm::MpiGroup& world, const std::string& folder) {
  if (world.rank() == 0) {
    std::filesystem::create_directory(folder);
    write_hdf5_file(folder + "/2001.h5", {{"fields", weather_fields(1)}}, weather_channels());
    write_hdf5_file(folder + "/2002.h5", {{"fields", weather_fields(2)}}, weather_channels());
    data::replace_npy({{folder + "/global_means.npy", weather_means().to(at::kFloat)}});
    data::replace_npy({{folder + "/global_stds.npy", weather_stds().to(at::kFloat)}});
  }
  world.barrier();
}

train::RunConfig weather_config(const std::string& folder, const Layout& layout, train::Precision precision) {
  train::RunConfig config;
  config.model = small_forecaster();
  config.precision.kind = precision;
  config.data.kind = train::DataKind::kHdf5;
  config.data.train_data = config.data.valid_data = folder;
  config.data.stats = folder;
  config.parallel.dp = layout.dp;
  config.parallel.tp = layout.tp;
  config.parallel.pp = layout.pp;
  config.global_batch_size = 8;
  config.schedule.steps = 2;
  train::resolve(config, layout.num_ranks());
  return config;
}

void save_initial_model(const comm::MpiGroup& world, const train::RunConfig& config, const std::string& path,
                        const train::TrainingData& data, int64_t format) {
  const comm::MpiGroup self = world.split(world.rank());
  if (world.rank() == 0) {
    mesh::DeviceMesh mesh(mesh::ParallelDims(1, 1, 1), self, c10::Device(c10::kCPU));
    train::Engine engine(train::engine_options(config), mesh);
    train::CheckpointInfo info;
    static_cast<train::TrainingData&>(info) = data;
    info.format = format;
    info.config = train::config_text(config);
    info.model = train::model_json(config.model);
    train::save_checkpoint(self, mesh, engine, config.model, info, path);
  }
  world.barrier();
}

std::vector<Layout> layouts_of(int ranks) {
  switch (ranks) {
    case 1:
      return {{1, 1, 1}};
    case 2:
      return {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}};
    case 4:
      return {{1, 2, 2}, {2, 1, 2}, {1, 4, 1}};
    default:
      return {{2, 2, 2}, {8, 1, 1}};
  }
}

train::Json read_json(const std::string& path) {
  std::ifstream file(path);
  return train::Json::parse(file);
}

}  // namespace vit_hybrid::testing
