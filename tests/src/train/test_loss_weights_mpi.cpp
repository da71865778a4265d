// The weights of a loss: from the grid, from statistics of increments, from a file, by name; and what is refused.
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

#include "data/datasets/npy.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/config/field_options.h"
#include "src/train/loss_weights.h"
#include "tests/support/contains.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// Three rows, all of the north, and three channels.
train::RunConfig config_of(const std::string& channel_weights) {
  train::RunConfig config;
  config.model.image_height = 3;
  config.model.out_channels = 3;
  config.loss.channel_weights = channel_weights;
  return config;
}

const train::LossFields kFields = {{{80.0, 60.0, 0.0}, {}}, {"t2m", "u10", "z500"}, true, {4.0, 2.0, 100.0}};

model::FieldWeights weights_of(const train::RunConfig& config, const comm::MpiGroup& world,
                               const train::LossFields& fields = kFields) {
  return train::loss_weights(config.loss, config.model, config.data.stats, world, fields);
}

std::vector<double> numbers(const at::Tensor& values) {
  const auto* const first = values.const_data_ptr<double>();
  return {first, first + values.numel()};
}

void check_weights(const at::Tensor& weights, std::vector<double> expected) {
  const double mean = std::accumulate(expected.begin(), expected.end(), 0.0) / static_cast<double>(expected.size());
  REQUIRE(weights.sizes().vec() == std::vector<int64_t>{std::ssize(expected)});
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(numbers(weights)[i] == doctest::Approx(expected[i] / mean).epsilon(1e-7));  // of files in fp32
  }
}

}  // namespace

TEST_CASE("loss weights: none, of the rows' latitudes, and by the channels' names") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  CHECK(!weights_of(config_of(""), world).is_defined());
  train::RunConfig config = config_of("");
  config.loss.latitude_weights = true;
  const model::FieldWeights rows = weights_of(config, world);
  CHECK(!rows.channels.defined());
  constexpr double kDegree = 3.14159265358979323846 / 180.0;
  check_weights(rows.rows, {std::cos(80.0 * kDegree), 0.5, 1.0});

  const model::FieldWeights named = weights_of(config_of("z500=4, 2t=0"), world);
  CHECK(!named.rows.defined());
  check_weights(named.channels, {0.0, 1.0, 4.0});

  config.model.task = model::Task::kClassify;
  CHECK(!weights_of(config, world).is_defined());
}

TEST_CASE("loss weights: the inverse variance of the increments, by the names beside them, and a file's numbers") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const std::string weights = folder.file("w.npy");
  if (world.rank() == 0) {
    const auto statistic = [](std::vector<double> values) {
      return at::tensor(values, at::kDouble).view({1, -1, 1, 1});
    };
    data::replace_npy({{folder.file("time_diff_means.npy"), statistic({0.0, 0.1, 0.0, 0.0})},
                       {folder.file("time_diff_stds.npy"), statistic({20.0, 0.5, 7.0, 1.0})},
                       {weights, at::tensor({1.0, 0.0, 3.0}, at::kFloat)}});
    std::ofstream(folder.file("channels.txt")) << "z500,u10,q700,t2m\n";
  }
  world.barrier();
  train::RunConfig config = config_of(train::kIncrementWeights);
  config.data.stats = folder.file("");
  check_weights(weights_of(config, world).channels, {16.0, 16.0, 25.0});
  check_weights(weights_of(config_of(weights), world).channels, {1.0, 0.0, 3.0});
  // Data without names are in the order of the statistics.
  train::LossFields nameless = kFields;
  nameless.names_are_given = false;
  CHECK(contains(agreed_error(world, [&] { weights_of(config, world, nameless); }).message(), "(1, 4, 1, 1)"));
}

TEST_CASE("loss weights: what is refused, with one line") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  if (world.rank() == 0) {
    const auto write = [&](const std::string& name, const std::vector<double>& values) {
      data::replace_npy({{folder.file(name), at::tensor(values, at::kDouble)}});
    };
    write("two.npy", {1.0, 2.0});
    write("negative.npy", {1.0, -2.0, 1.0});
    write("infinite.npy", {1.0, std::numeric_limits<double>::infinity(), 1.0});
    write("nan.npy", {1.0, 1.0, std::nan("")});
    write("zero.npy", {0.0, 0.0, 0.0});
  }
  world.barrier();
  const auto refusal = [&](const std::string& weights) {
    const Error error = agreed_error(world, [&] { weights_of(config_of(weights), world); });
    return error.message() + "; " + error.hint();
  };
  CHECK(contains(refusal(folder.file("two.npy")), "two.npy has the shape (2), needed is (3)"));
  CHECK(contains(refusal(folder.file("negative.npy")), "holds -2 for channel 1"));
  CHECK(contains(refusal(folder.file("infinite.npy")), "holds inf for channel 1"));
  CHECK(contains(refusal(folder.file("nan.npy")), "holds nan for channel 2"));
  CHECK(contains(refusal(folder.file("zero.npy")), "the largest weight is 0"));
  CHECK(contains(refusal(folder.file("none.npy")), "none.npy"));
  CHECK(contains(refusal("t2m=0,u10=0,z500=0"), "the largest weight is 0"));
  CHECK(contains(refusal("t2m=1,q700=2"), "names 'q700', which is no channel of the output; its channels are t2m"));
  CHECK(contains(refusal("t2m=-1"), "the weight of 't2m' is '-1'"));
  CHECK(contains(refusal("t2m=1e999"), "the weight of 't2m' is '1e999'"));
  CHECK(contains(refusal("t2m=nan"), "the weight of 't2m' is 'nan'"));
  CHECK(contains(refusal("t2m"), "'t2m' is no weight of a channel"));
  CHECK(contains(refusal("2t=1,t2m=2"), "'t2m' has two weights"));
  CHECK(contains(refusal(train::kIncrementWeights), "give --stats FOLDER"));
  train::RunConfig config = config_of(train::kIncrementWeights);
  config.data.stats = folder.file("");
  const Error gone = agreed_error(world, [&] { weights_of(config, world); });
  CHECK(contains(gone.message(), "increments needs " + folder.file("/time_diff_means.npy") + ": No such file"));
}
