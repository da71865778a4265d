// Checkpoints of small models with the outputs that this program computes, for comparison with other programs.
//
//   interop_models make FOLDER             writes <case>.h5, <case>_inputs.npy and <case>_outputs.npy
//   interop_models run CHECKPOINT IN OUT   computes the outputs of a checkpoint's model for inputs
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <string>
#include <vector>

#include "data/datasets/npy.h"
#include "model/losses.h"
#include "model/vit_stage.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/exchange.h"
#include "src/checkpoint/format.h"
#include "src/checkpoint/slice_reader.h"
#include "tests/support/group_of_one.h"
#include "tests/support/vit_harness.h"

namespace {

using namespace vit_hybrid;

constexpr int64_t kNumSamples = 3;

std::vector<std::pair<std::string, model::VitOptions>> cases() {
  auto square = testing::small_classifier(model::Pooling::kToken);
  square.image_width = square.image_height;
  return {{"forecast", testing::small_forecaster()},
          {"token", square},
          {"mean", testing::small_classifier(model::Pooling::kMean)}};
}

void run(const comm::MpiGroup& world, const std::string& checkpoint, const std::string& inputs,
         const std::string& outputs) {
  const train::CheckpointReader reader(checkpoint);
  const model::VitOptions options = train::model_from_json(reader.info().model);
  auto& group = testing::group_of_one();
  testing::TestStage ours(options, {0, options.num_units()}, testing::test_parameters(options), at::kFloat, group);
  train::load_parameters(reader, ours.buffer.specs(), ours.buffer, world);
  const at::NoGradGuard no_grad;
  const at::Tensor images = data::read_npy(inputs).to(at::kFloat);
  const auto context = testing::test_context(images.size(0), Mode::kEvaluation);
  data::replace_npy({{outputs, model::fields_of(ours.stage.forward(images, context), options).contiguous()}});
}

void make(const std::string& folder, const comm::MpiGroup& world) {
  for (const auto& [name, options] : cases()) {
    train::NamedWeights weights;
    for (const auto& [weight, values] : testing::test_parameters(options)) {
      weights[weight] = values.to(at::kFloat).contiguous();
    }
    train::CheckpointInfo info;
    info.model = train::model_json(options);
    info.step = 12;
    info.config = "seed: 1\n";
    const std::string path = folder + "/" + name;
    train::write_weights(world, path + ".h5", info, weights);
    data::replace_npy({{path + "_inputs.npy", testing::test_images(options, kNumSamples).to(at::kFloat)}});
    run(world, path + ".h5", path + "_inputs.npy", path + "_outputs.npy");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    comm::MpiSession session(&argc, &argv);
    if (words.size() == 2 && words[0] == "make") {
      make(words[1], session.world());
    } else if (words.size() == 4 && words[0] == "run") {
      run(session.world(), words[1], words[2], words[3]);
    } else {
      throw Error(ErrorClass::kUsage, "usage: interop_models make FOLDER | run CHECKPOINT INPUTS OUTPUTS");
    }
    session.finalize();
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "interop_models: %s\n", exception.what());
    return 1;
  }
  return 0;
}
