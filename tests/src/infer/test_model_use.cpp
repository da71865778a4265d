// The configuration in which a checkpoint's model is used: the checkpoint's, under what the command line says.
#include <doctest/doctest.h>

#include "src/base/error.h"
#include "src/checkpoint/format.h"
#include "src/config/config_text.h"
#include "src/config/load_run_config.h"
#include "src/config/sources.h"
#include "src/infer/model_use.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;

namespace {

// What a run that was started with these words writes into its checkpoint.
CheckpointInfo checkpoint_of(const std::vector<std::string>& words, int world_size) {
  LoadedConfig loaded = load_run_config(words, {}, read_local_file);
  REQUIRE(loaded.problems.empty());
  resolve(loaded.config, world_size);
  CheckpointInfo info;
  info.config = config_text(loaded.config);
  info.model = model_json(loaded.config.model);
  return info;
}

options::Source command_line(const std::vector<std::string>& words) {
  RunConfig config;
  options::OptionTable table;
  add_run_options(table, config, UsePurpose::kEvaluation);
  return options::parse_command_line(table, words);
}

}  // namespace

TEST_CASE("model use: the model, precision, seed and statistics are the checkpoint's, the layout is not") {
  const CheckpointInfo info = checkpoint_of({"--preset",
                                             "weather-d12",
                                             "--depth",
                                             "5",
                                             "--train-data",
                                             "/t",
                                             "--stats",
                                             "/s",
                                             "--precision",
                                             "fp64",
                                             "--seed",
                                             "7",
                                             "--dp",
                                             "2",
                                             "--tp",
                                             "2",
                                             "--global-batch-size",
                                             "6",
                                             "--limit-nsamples",
                                             "4",
                                             "--micro-batch-size",
                                             "3",
                                             "--run-dir",
                                             "/r"},
                                            4);
  const RunConfig config = config_for_use(info, "c.h5", "/d", {}, 3);
  CHECK(config.model.depth == 5);
  CHECK(config.model.embed_dim == 384);
  CHECK(config.precision.kind == Precision::kFp64);
  CHECK(config.seed == 7);
  CHECK(config.data.global_means == "/s/global_means.npy");
  CHECK(config.data.valid_data == "/d");
  CHECK(config.data.limit_nsamples == 0);
  CHECK(config.data.valid_batch_size == 6);
  CHECK(config.parallel.dp == 3);
  CHECK(config.parallel.tp == 1);
  CHECK(config.parallel.micro_batch_size == 2);
  CHECK(config.run_dir.empty());
}

TEST_CASE("model use: where the training's value is what is not given, the table says so") {
  RunConfig config;
  options::OptionTable table;
  add_run_options(table, config, UsePurpose::kEvaluation);
  for (const char* name : {"precision", "stats", "valid-resize"}) {
    CHECK(table.find(name)->value.print() == "the training's");
  }
  CHECK(table.find("tp")->value.print() == "1");
}

TEST_CASE("model use: statistics that the checkpoint holds need no files, unless files are given") {
  CheckpointInfo info = checkpoint_of({"--preset", "weather-short", "--train-data", "/t", "--stats", "/s"}, 1);
  info.means.assign(20, 1.0);
  info.stds.assign(20, 2.0);
  const RunConfig plain = config_for_use(info, "c.h5", "/d", {}, 1);
  CHECK(plain.data.global_means.empty());
  CHECK(plain.data.global_stds.empty());
  CHECK(plain.data.stats == "/s");  // where a climatology may be, which is no part of a checkpoint
  for (const std::string& problem : missing_paths(plain)) {
    CHECK(problem.find("--stats") == std::string::npos);
  }
  CHECK_FALSE(has_time_means_of_training(plain.data, {}));
  const options::Source words = command_line({"--stats", "/other"});
  const RunConfig given = config_for_use(info, "c.h5", "/d", words, 1);
  CHECK(given.data.global_means == "/other/global_means.npy");
  CheckpointInfo with_means =
      checkpoint_of({"--preset", "weather-short", "--train-data", "/t", "--stats", "/s", "--time-means", "/m.npy"}, 1);
  with_means.means = info.means;
  with_means.stds = info.stds;
  const RunConfig named = config_for_use(with_means, "c.h5", "/d", {}, 1);
  CHECK(has_time_means_of_training(named.data, {}));  // which may be gone
  CHECK_FALSE(has_time_means_of_training(named.data, command_line({"--time-means", "/m.npy"})));
  CheckpointInfo builtin = checkpoint_of({}, 1);  // a training without any files
  builtin.means = {1.0};
  builtin.stds = {2.0};
  CHECK(config_for_use(builtin, "c.h5", "/d", {}, 1).data.global_means.empty());
  info.grid.latitudes = {1.0, 2.0};
  const Error damaged = testing::thrown_error([&] { config_for_use(info, "c.h5", "/d", {}, 1); });
  CHECK(damaged.error_class() == ErrorClass::kBadData);
}

TEST_CASE("model use: the command line wins") {
  const CheckpointInfo info = checkpoint_of({"--preset", "weather-short", "--train-data", "/t", "--stats", "/s"}, 1);
  const RunConfig config = config_for_use(
      info, "c.h5", "/d", command_line({"--stats", "/other", "--tp", "2", "--pp", "2", "--valid-batch-size", "1"}), 8);
  CHECK(config.data.global_stds == "/other/global_stds.npy");
  CHECK(config.parallel.dp == 2);
  CHECK(config.parallel.tp == 2);
  CHECK(config.data.valid_batch_size == 1);
  CHECK(config.global_batch_size == 2);  // a batch smaller than the replicas is allowed here
}

TEST_CASE("model use: how kernels are chosen is said on the command line, and not taken from the training") {
  const CheckpointInfo info = checkpoint_of(
      {"--preset", "weather-short", "--train-data", "/t", "--stats", "/s", "--deterministic", "--retune"}, 1);
  const RunConfig plain = config_for_use(info, "c.h5", "/d", {}, 1);
  CHECK_FALSE(plain.deterministic);
  CHECK_FALSE(plain.retune);
  const RunConfig asked = config_for_use(info, "c.h5", "/d", command_line({"--deterministic", "--retune"}), 1);
  CHECK(asked.deterministic);
  CHECK(asked.retune);
  RunConfig config;
  options::OptionTable forecast;
  add_run_options(forecast, config, UsePurpose::kForecast);
  CHECK(forecast.find("deterministic") != nullptr);
  CHECK(forecast.find("retune") != nullptr);
}

TEST_CASE("model use: an evaluation reads as a training does, a forecast's few states need no choice") {
  const CheckpointInfo info = checkpoint_of({"--preset", "weather-short", "--train-data", "/t", "--stats", "/s"}, 1);
  const RunConfig staged = config_for_use(
      info, "c.h5", "/d", command_line({"--stage-data", "node", "--stage-dir", "/fast", "--pin-memory", "off"}), 2);
  CHECK((staged.data.stage == StageData::kNode));
  CHECK(staged.data.stage_dir == "/fast");
  CHECK((staged.data.pin_memory == PinMemory::kOff));
  const RunConfig collective = config_for_use(
      info, "c.h5", "/d", command_line({"--io", "collective", "--mpiio-hints", "romio_cb_read=enable"}), 2);
  CHECK(collective.data.mpiio_hints == "romio_cb_read=enable");
  const Error refused = testing::thrown_error([&] {
    config_for_use(info, "c.h5", "/d", command_line({"--mpiio-hints", "romio_cb_read=enable"}), 2);
  });
  CHECK(refused.message().find("--mpiio-hints are for --io collective") != std::string::npos);
  RunConfig config;
  options::OptionTable forecast;
  add_run_options(forecast, config, UsePurpose::kForecast);
  CHECK(forecast.find("pin-memory") == nullptr);
  CHECK(forecast.find("stage-data") == nullptr);
}

TEST_CASE("model use: what cannot be is refused with what can") {
  const CheckpointInfo builtin = checkpoint_of({}, 1);
  const Error no_stats = testing::thrown_error([&] { config_for_use(builtin, "c.h5", "/d", {}, 1); });
  CHECK(no_stats.error_class() == ErrorClass::kUsage);
  CHECK(no_stats.message().find("--stats") != std::string::npos);
  const CheckpointInfo info = checkpoint_of({"--preset", "weather-short", "--train-data", "/t", "--stats", "/s"}, 1);
  const Error degrees = testing::thrown_error([&] {
    config_for_use(info, "c.h5", "/d", command_line({"--tp", "3"}), 4);
  });
  CHECK(degrees.message().find("--tp 3") != std::string::npos);
}

TEST_CASE("model use: weights alone, without a configuration, bring their model") {
  CheckpointInfo info;
  info.model = model_json(model::preset("vit-ti16"));
  const RunConfig config = config_for_use(info, "c.h5", "/d.h5", {}, 1);
  CHECK_FALSE(config.is_forecast());
  CHECK(config.data.dataset_name == "images");
}
