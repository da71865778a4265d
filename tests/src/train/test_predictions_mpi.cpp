// What `evaluate --predictions` writes: every sample once, in order, in any layout, with the probabilities of a plain
// LibTorch model.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "data/datasets/augmentation.h"
#include "data/hdf5/hdf5_rows.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/verify.h"
#include "src/infer/evaluate.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/model_use_harness.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using train::RunConfig;

namespace {

constexpr int64_t kImages = 11;
constexpr int64_t kClasses = 7;

at::Tensor some_images() {
  return (normal_tensor({kImages, 16, 16, 3}, 3) * 60.0 + 128.0).clamp(0, 255).to(at::kByte);
}

RunConfig config_on(const std::string& data, int world_size) {
  RunConfig config;
  config.model = small_classifier(model::Pooling::kToken);
  config.model.image_width = config.model.image_height = 16;
  config.precision.kind = train::Precision::kFp64;
  config.data.kind = train::DataKind::kHdf5;
  config.data.valid_data = config.data.train_data = data;
  config.data.valid_resize = 16;  // the images as they are
  config.global_batch_size = 4;
  train::resolve(config, world_size);
  return config;
}

// The probabilities by torch::nn modules in double.
at::Tensor reference_probabilities(const RunConfig& config, const std::string& checkpoint) {
  const train::CheckpointReader reader(checkpoint);
  NamedTensors parameters;
  const std::string group = "parameters/";
  for (const auto& tensor : reader.tensors()) {
    if (tensor.path.starts_with(group)) {
      parameters[tensor.path.substr(group.size())] = train::read_verified(reader, tensor).to(at::kDouble);
    }
  }
  const data::ColorStatistics statistics;
  const auto per_channel = [](const std::array<float, 3>& values) {
    return at::tensor(std::vector<double>(values.begin(), values.end()), at::kDouble).reshape({1, 3, 1, 1});
  };
  const at::Tensor images =
      ((some_images().permute({0, 3, 1, 2}).to(at::kDouble) / 255.0 - per_channel(statistics.mean)) /
       per_channel(statistics.std));
  ReferenceVit reference(config.model, at::kDouble, parameters);
  return at::softmax(reference.forward(images, test_context(kImages, Mode::kEvaluation)), 1).detach();
}

std::vector<std::vector<std::string>> cells_of(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream cells(line);
    rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',');) {
      rows.back().push_back(cell);
    }
  }
  return rows;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

void check_csv(const std::string& path, const at::Tensor& expected) {
  const auto rows = cells_of(path);
  REQUIRE(rows.size() == kImages + 1);
  CHECK(join(rows[0], ",") == "sample,class,0,1,2,3,4,5,6");
  for (int64_t i = 0; i < kImages; ++i) {
    const auto& row = rows[static_cast<size_t>(i) + 1];
    REQUIRE(row.size() == 2 + kClasses);
    CHECK(row[0] == str(i));
    CHECK(row[1] == str(expected[i].argmax().item<int64_t>()));
    for (int64_t c = 0; c < kClasses; ++c) {
      CHECK(std::abs(std::stod(row[static_cast<size_t>(c) + 2]) - expected[i][c].item<double>()) < 1e-6);
    }
  }
}

train::PredictedStep step_of(int64_t first, const std::vector<int64_t>& classes,
                             const std::vector<double>& probabilities) {
  const auto n = std::ssize(classes);
  return {first, at::tensor(classes, at::kLong), at::tensor(classes, at::kLong).reshape({n, 1}),
          at::tensor(probabilities, at::kDouble).reshape({n, -1})};
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("predictions: every sample once, in order, as a plain model's softmax, in any layout, without labels") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  RunConfig config = config_on(folder.file("images.h5"), world.size());
  if (world.rank() == 0) {
    write_hdf5_file(config.data.valid_data, {{"images", some_images()}});
  }
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  at::Tensor expected;
  if (world.rank() == 0) {
    expected = reference_probabilities(config, folder.file("c.h5"));
    REQUIRE((expected - 1.0 / kClasses).abs().max().item<double>() > 1e-3);  // it says something
  }
  train::ModelUse use;
  use.overwrite = true;
  for (const Layout& layout : layouts_of(world.size())) {
    for (const int64_t batch : {1, 4, 100}) {
      CAPTURE(layout.text());
      CAPTURE(batch);
      config.parallel.dp = layout.dp;
      config.parallel.tp = layout.tp;
      config.parallel.pp = layout.pp;
      config.parallel.micro_batch_size = 2;
      config.data.valid_batch_size = batch;
      const std::string csv = folder.file("all.csv"), hdf5 = folder.file("all.h5"), top = folder.file("top.h5");
      const train::Evaluation figures = train::evaluate(config, use, checkpoint, world, {.path = csv});
      CHECK(figures.samples == kImages);
      CHECK(figures.loss == 0.0);  // there are no labels: nothing is made up
      if (world.rank() == 0) {
        check_csv(csv, expected);
      }
      if (batch != 4) {
        continue;  // the other files are of the same numbers
      }
      train::evaluate(config, use, checkpoint, world, {.path = hdf5});
      train::evaluate(config, use, checkpoint, world, {.path = top, .top = 3});
      if (world.rank() == 0) {
        const at::Tensor probabilities = data::read_whole_dataset(hdf5, "probabilities");
        REQUIRE(probabilities.sizes() == at::IntArrayRef{kImages, kClasses});
        CHECK(largest_difference(probabilities, expected) < 1e-6);
        CHECK(at::equal(data::read_whole_dataset(hdf5, "class"), expected.argmax(1)));
        const auto [best, classes] = expected.topk(3, 1);
        CHECK(largest_difference(data::read_whole_dataset(top, "probabilities"), best) < 1e-6);
        CHECK(at::equal(data::read_whole_dataset(top, "classes"), classes));
      }
    }
  }
  use.out = folder.file("figures.json");
  const Error out =
      agreed_error(world, [&] { train::evaluate(config, use, checkpoint, world, {.path = folder.file("all.csv")}); });
  CHECK(out.message().find("--out needs labels") != std::string::npos);
  use.out.clear();
  CHECK(agreed_error(world, [&] { train::evaluate(config, use, checkpoint, world); }).error_class() ==
        ErrorClass::kBadData);
}

TEST_CASE("predictions: the confusion matrix counts every sample, and files are refused before the work") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  RunConfig config = config_on(folder.file("images.h5"), world.size());
  const at::Tensor labels = at::arange(kImages, at::kLong).remainder(kClasses);
  if (world.rank() == 0) {
    write_hdf5_file(config.data.valid_data, {{"images", some_images()}, {"labels", labels}});
  }
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  train::ModelUse use;
  use.overwrite = true;
  for (const Layout& layout : layouts_of(world.size())) {
    CAPTURE(layout.text());
    config.parallel.dp = layout.dp;
    config.parallel.tp = layout.tp;
    config.parallel.pp = layout.pp;
    train::evaluate(config, use, checkpoint, world, {.confusion = folder.file("confusion.json")});
    if (world.rank() == 0) {
      const at::Tensor predicted = reference_probabilities(config, folder.file("c.h5")).argmax(1);
      const train::Json json = read_json(folder.file("confusion.json"));
      std::vector<std::vector<int64_t>> counts(kClasses, std::vector<int64_t>(kClasses, 0));
      for (int64_t i = 0; i < kImages; ++i) {
        ++counts[static_cast<size_t>(labels[i].item<int64_t>())][static_cast<size_t>(predicted[i].item<int64_t>())];
      }
      CHECK(json["matrix"].get<std::vector<std::vector<int64_t>>>() == counts);
      CHECK(json["classes"].size() == kClasses);
    }
  }
  use.overwrite = false;
  world.barrier();
  for (const train::PredictionOptions& options :
       {train::PredictionOptions{.path = folder.file("none/p.csv")},
        train::PredictionOptions{.path = folder.file("none/p.h5")},
        train::PredictionOptions{.confusion = folder.file("confusion.json")}}) {
    const Error refused = agreed_error(world, [&] { train::evaluate(config, use, checkpoint, world, options); });
    CHECK(refused.error_class() == ErrorClass::kCannotCreate);
  }
}

TEST_CASE("predictions: a CSV file has all probabilities, or the most probable classes with their names") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const comm::MpiGroup self = world.split(world.rank());
  if (world.rank() != 0) return;
  const std::vector<std::string> classes = {"Fox, red", "a \"b\"", "c"};
  const std::string path = folder.file("p.csv");
  {
    const auto file = train::make_prediction_file({.path = path}, classes, 2, self);
    file->write(step_of(0, {1}, {0.25, 0.5, 0.25}));
    file->write(step_of(1, {0}, {0.75, 0.125, 0.125}));
    CHECK_FALSE(std::ifstream(path).good());  // not before it is whole
    file->finish();
  }
  CHECK(content_of(path) ==
        "sample,class,\"Fox, red\",\"a \"\"b\"\"\",c\n0,\"a \"\"b\"\"\",0.25,0.5,0.25\n1,\"Fox, "
        "red\",0.75,0.125,0.125\n");
  {
    const auto file = train::make_prediction_file({.path = path, .top = 2}, classes, 1, self);
    file->write({0, at::tensor(std::vector<int64_t>{0}, at::kLong),
                 at::tensor(std::vector<int64_t>{2, 0}, at::kLong).reshape({1, 2}),
                 at::tensor(std::vector<double>{0.5, 0.25}, at::kDouble).reshape({1, 2})});
    file->finish();
  }
  CHECK(content_of(path) == "sample,class,probability,class_2,probability_2\n0,c,0.5,\"Fox, red\",0.25\n");
  { train::make_prediction_file({.path = path}, classes, 1, self)->write(step_of(0, {0}, {1.0, 0.0, 0.0})); }
  CHECK(content_of(path).find("probability_2") != std::string::npos);  // what was not finished leaves the old file
}
