// Weights out to safetensors files and back in: the same numbers under every program's names; refusals.
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <fstream>

#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/exchange.h"
#include "src/checkpoint/format.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/verify.h"
#include "tests/support/contains.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

namespace vit_hybrid::train {
namespace {

using testing::agreed_error;
using testing::contains;
using testing::ScratchFolder;

NamedWeights fp32_weights_of(const model::VitOptions& options) {
  NamedWeights weights;
  for (const auto& [name, values] : testing::test_parameters(options)) {
    weights[name] = values.to(at::kFloat).contiguous();
  }
  return weights;
}

model::VitOptions square_classifier() {
  auto options = testing::small_classifier(model::Pooling::kToken);
  options.image_width = options.image_height;
  return options;
}

// A checkpoint of weights alone, and a file of this rank's own beside it.
struct Files {
  Files(const comm::MpiGroup& world, const model::VitOptions& options)
      : folder(world),
        checkpoint(folder.file("weights.h5")),
        exported(folder.file("rank" + std::to_string(world.rank()) + ".safetensors")) {
    CheckpointInfo info;
    info.model = model_json(options);
    write_weights(world, checkpoint, info, fp32_weights_of(options));
  }
  ScratchFolder folder;
  std::string checkpoint;
  std::string exported;
};

}  // namespace

TEST_CASE("checkpoint exchange: out and in again, the same bits") {
  const auto world = comm::MpiGroup::world();
  const std::pair<model::VitOptions, std::vector<WeightNames>> cases[] = {
      {testing::small_forecaster(), {WeightNames::kTimm, WeightNames::kNersc}},
      {square_classifier(), {WeightNames::kTimm, WeightNames::kTorchvision}},
      {testing::small_classifier(model::Pooling::kMean), {WeightNames::kTimm}}};
  for (const auto& [options, all_names] : cases) {
    const Files files(world, options);
    const CheckpointReader checkpoint(world, files.checkpoint);
    for (const auto names : all_names) {
      for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        export_weights(checkpoint, files.exported, names, type);
        const ForeignWeights foreign = read_foreign_weights(files.exported, names);
        const auto weights = fp32_weights_of(options);
        REQUIRE(foreign.weights.size() == weights.size());
        for (const auto& [name, values] : weights) {
          CAPTURE(name);
          const at::Tensor expected = values.to(type).to(type == at::kDouble ? at::kDouble : at::kFloat);
          CHECK(at::equal(foreign.weights.at(name), expected));
        }
        REQUIRE(foreign.model.has_value());
        CHECK(model_json(*foreign.model) == model_json(options));
      }
    }
    world.barrier();
  }
}

TEST_CASE("checkpoint exchange: what has no counterpart, no range or no place is refused") {
  const auto world = comm::MpiGroup::world();
  const auto options = testing::small_forecaster();
  const Files files(world, options);
  const CheckpointReader checkpoint(world, files.checkpoint);
  const Error none =
      testing::thrown_error([&] { export_weights(checkpoint, files.exported, WeightNames::kTorchvision, at::kFloat); });
  CHECK((none.error_class() == ErrorClass::kUsage));
  CHECK(contains(none.message(), "torchvision"));
  export_weights(checkpoint, files.exported, WeightNames::kTimm, at::kFloat);
  const Error other = testing::thrown_error([&] { read_foreign_weights(files.exported, WeightNames::kTorchvision); });
  CHECK((other.error_class() == ErrorClass::kBadData));
  CHECK(contains(other.message(), "has no place"));

  NamedWeights large = fp32_weights_of(options);
  large.at("norm.weight").mul_(1e6);
  CheckpointInfo info;
  info.model = model_json(options);
  const std::string path = files.folder.file("large.h5");
  write_weights(world, path, info, large);
  const CheckpointReader reader(world, path);
  const Error range =
      testing::thrown_error([&] { export_weights(reader, files.exported, WeightNames::kTimm, at::kHalf); });
  CHECK((range.error_class() == ErrorClass::kUsage));
  CHECK(contains(range.message(), "norm.weight"));
  export_weights(reader, files.exported, WeightNames::kTimm, at::kBFloat16);
  world.barrier();
}

TEST_CASE("checkpoint exchange: verification names the first tensor that was changed") {
  const auto world = comm::MpiGroup::world();
  const Files files(world, testing::small_forecaster());
  const CheckpointReader checkpoint(world, files.checkpoint);
  verify_checkpoint(checkpoint);
  world.barrier();
  const int64_t offset = checkpoint.find("parameters/norm.bias")->offset + 2;
  if (world.rank() == 0) {
    std::fstream file(files.checkpoint, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset);
    file.put('\x5a');
  }
  world.barrier();
  const Error error = agreed_error(world, [&] { verify_checkpoint(checkpoint); });
  CHECK((error.error_class() == ErrorClass::kBadData));
  CHECK(contains(error.message(), "'parameters/norm.bias'"));
  CHECK((testing::thrown_error([&] {
           export_weights(checkpoint, files.exported, WeightNames::kTimm, at::kFloat);
         }).error_class() == ErrorClass::kBadData));
  world.barrier();
}

}  // namespace vit_hybrid::train
