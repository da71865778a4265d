// Mutated checkpoints for their reader: not one of them may pass for a checkpoint.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "parallel/comm/mpi/mpi_session.h"
#include "src/checkpoint/exchange.h"
#include "src/checkpoint/format.h"
#include "src/checkpoint/verify.h"
#include "tests/support/fuzz.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/vit_harness.h"

namespace {

using namespace vit_hybrid;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string checkpoint_bytes(const comm::MpiGroup& world, const model::VitOptions& options, at::ScalarType type) {
  train::NamedWeights weights;
  for (const auto& [name, values] : testing::test_parameters(options)) {
    weights[name] = values.to(type).contiguous();
  }
  train::CheckpointInfo info;
  info.model = train::model_json(options);
  const testing::ScratchFolder folder;
  write_weights(world, folder.file("weights.h5"), info, weights);
  return bytes_of(folder.file("weights.h5"));
}

}  // namespace

int main(int argc, char** argv) {
  comm::MpiSession session(&argc, &argv);
  auto forecaster = testing::small_forecaster();
  forecaster.depth = 1;
  const std::vector<std::string> seeds = {
      checkpoint_bytes(session.world(), forecaster, at::kFloat),
      checkpoint_bytes(session.world(), testing::small_classifier(model::Pooling::kToken), at::kDouble)};
  const int exit_code = testing::fuzz(argc, argv, seeds, [&](const std::string& path) {
    const train::CheckpointReader reader(path);
    train::verify_checkpoint(reader);
    train::model_from_json(reader.info().model);
    const std::string bytes = bytes_of(path);
    if (std::find(seeds.begin(), seeds.end(), bytes) == seeds.end()) {
      throw std::runtime_error("damage was not found");
    }
  });
  session.finalize();
  return exit_code;
}
