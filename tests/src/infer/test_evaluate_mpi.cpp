// The command `evaluate`: the trainer's figures, in any layout.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <doctest/doctest.h>

#include <optional>

#include "src/checkpoint/checkpoint_reader.h"
#include "src/infer/evaluate.h"
#include "src/train/data_source.h"
#include "src/train/trainer.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/model_use_harness.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using train::Json;
using train::RunConfig;

namespace {

void check_close(const std::vector<double>& a, const std::vector<double>& b, double epsilon) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i] == doctest::Approx(b[i]).epsilon(epsilon));
  }
}

void check_close(const train::Evaluation& a, const train::Evaluation& b, double epsilon) {
  CHECK(a.samples == b.samples);
  CHECK(a.loss == doctest::Approx(b.loss).epsilon(epsilon));
  check_close(a.rmse, b.rmse, epsilon);
  check_close(a.acc, b.acc, epsilon);
  check_close(a.persistence_rmse, b.persistence_rmse, epsilon);
  check_close(a.persistence_acc, b.persistence_acc, epsilon);
  CHECK(a.top1 == doctest::Approx(b.top1));
  CHECK(a.top5 == doctest::Approx(b.top5));
}

}  // namespace

TEST_CASE("evaluate: the trainer's last validation, in other layouts and batch sizes") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_weather(world, folder.file("data"));
  RunConfig training = weather_config(folder.file("data"), {world.size(), 1, 1}, train::Precision::kFp64);
  training.model.loss = model::FieldLoss::kMeanAbsolute;
  training.loss = {.latitude_weights = true, .channel_weights = "z500=3,u10=0.5"};
  Json validated;
  {
    mesh::DeviceMesh mesh(mesh::ParallelDims(world.size(), 1, 1), world, c10::Device(c10::kCPU));
    const train::DataSource data = train::open_data(training.model, training.data, training.seed, world);
    train::RunLog log(data.train->channel_names(), 1);
    train::TrainerOptions options;
    options.checkpoint_folder = folder.file("checkpoints");
    train::Trainer trainer(training, world, mesh, data, log, options);
    trainer.load();
    trainer.prepare();
    trainer.run();
    validated = log.final_figures()["final"];
  }
  REQUIRE(validated["step"].get<int64_t>() == 2);
  const train::CheckpointReader checkpoint(world, folder.file("checkpoints"));
  for (const Layout& layout : layouts_of(world.size())) {
    for (const int64_t batch : {1, 5, 100}) {
      CAPTURE(layout.text());
      CAPTURE(batch);
      RunConfig config =
          train::config_for_use(checkpoint.info(), checkpoint.path(), folder.file("data"), {}, world.size());
      config.parallel.dp = layout.dp;
      config.parallel.tp = layout.tp;
      config.parallel.pp = layout.pp;
      config.parallel.micro_batch_size = 2;
      config.data.valid_batch_size = batch;
      const train::Evaluation figures = train::evaluate(config, {}, checkpoint, world);
      CHECK(figures.samples == 2 * (kWeatherTimes - 1));
      CHECK(figures.loss == doctest::Approx(validated["loss"].get<double>()).epsilon(1e-10));
      for (size_t c = 0; c < weather_channels().size(); ++c) {
        CHECK(figures.rmse[c] ==
              doctest::Approx(validated["rmse"][weather_channels()[c]].get<double>()).epsilon(1e-10));
        CHECK(figures.acc[c] == doctest::Approx(validated["acc"][weather_channels()[c]].get<double>()).epsilon(1e-10));
        CHECK(figures.persistence_rmse[c] ==
              doctest::Approx(validated["persistence_rmse"][weather_channels()[c]].get<double>()).epsilon(1e-10));
      }
    }
  }
}

TEST_CASE("evaluate: a classifier's top-1 and top-5 do not depend on the layout, and the JSON file has them") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  RunConfig config;
  config.model = small_classifier(model::Pooling::kToken);
  config.model.image_width = config.model.image_height = 16;
  config.precision.kind = train::Precision::kFp64;
  config.data.kind = train::DataKind::kHdf5;
  config.data.valid_data = config.data.train_data = folder.file("images.h5");
  config.global_batch_size = 4;
  train::resolve(config, world.size());
  if (world.rank() == 0) {
    const at::Tensor images = (normal_tensor({11, 20, 20, 3}, 3) * 60.0 + 128.0).clamp(0, 255).to(at::kByte);
    const at::Tensor labels = at::arange(11, at::kLong).remainder(7);
    write_hdf5_file(config.data.valid_data, {{"images", images}, {"labels", labels}});
  }
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  train::ModelUse use;
  use.out = folder.file("figures.json");
  std::optional<train::Evaluation> first;
  for (const Layout& layout : layouts_of(world.size())) {
    CAPTURE(layout.text());
    config.parallel.dp = layout.dp;
    config.parallel.tp = layout.tp;
    config.parallel.pp = layout.pp;
    config.parallel.micro_batch_size = 3;
    const train::Evaluation figures = train::evaluate(config, use, checkpoint, world);
    CHECK(figures.samples == 11);
    if (first) check_close(figures, *first, 1e-10);
    first = figures;
    const Json json = read_json(use.out);
    CHECK(json["samples"].get<int64_t>() == 11);
    CHECK(json["top5"].get<double>() == figures.top5);
    use.overwrite = false;
    const Error refused = agreed_error(world, [&] { train::evaluate(config, use, checkpoint, world); });
    CHECK(refused.error_class() == ErrorClass::kCannotCreate);
    CHECK(refused.message().find("is there already") != std::string::npos);
    train::ModelUse nowhere = use;
    nowhere.out = folder.file("none/figures.json");
    const Error no_folder = agreed_error(world, [&] { train::evaluate(config, nowhere, checkpoint, world); });
    CHECK(no_folder.error_class() == ErrorClass::kCannotCreate);
    CHECK(no_folder.message().find("none' does not exist") != std::string::npos);
    use.overwrite = true;
  }
}
