// Resuming by all ranks: which checkpoint it is, and that what does not fit or is damaged is refused on all alike.
#include <doctest/doctest.h>

#include <fstream>
#include <utility>

#include "src/base/text.h"
#include "src/train/checkpoint/checkpoint_reader.h"
#include "src/train/checkpoint/engine_state.h"
#include "src/train/checkpoint/resume.h"
#include "tests/support/checkpoint_rig.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using train::CheckpointReader;

TEST_CASE("resume: what does not fit is refused with what differs") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  CheckpointRig rig(world, folder.path());
  rig.checkpoints.save({1, 0, 16}, std::nullopt);
  const CheckpointReader file(world, folder.path());
  CHECK(file.info().channels == "u,v");
  CHECK(file.info().libraries.find("HDF5 1.") != std::string::npos);
  train::check_resumable(file, rig.config, {64, "u,v"}, world);
  train::check_resumable(file, rig.config, {64, ""}, world);  // data that name no channels may be any
  train::RunConfig other = rig.config;
  other.model.depth += 1;
  other.seed = 5;
  const Error error = agreed_error(world, [&] { train::check_resumable(file, other, {65, "v,u"}, world); });
  CHECK(error.error_class() == ErrorClass::kUsage);
  for (const char* text : {"--depth is ", "--seed is 5, the checkpoint's is 1",
                           "the training data have 65 samples in use, the checkpoint's had 64",
                           "the data have the channels v,u, the model was trained on u,v"}) {
    CAPTURE(text);
    CHECK(error.message().find(text) != std::string::npos);
  }
  CHECK(error.hint().find("--init-from") != std::string::npos);
}

TEST_CASE("resume: another optimizer than the checkpoint's is refused, but Adam and AdamW are one") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  CheckpointRig rig(world, folder.path());
  rig.checkpoints.save({1, 0, 16}, std::nullopt);
  const CheckpointReader of_adam(world, folder.path());
  train::RunConfig config = rig.config;
  const auto message = [&](const CheckpointReader& file) {
    const Error error = agreed_error(world, [&] { train::check_resumable(file, config, {64, "u,v"}, world); });
    CHECK(error.error_class() == ErrorClass::kUsage);
    CHECK(error.hint().find("--init-from " + file.path()) != std::string::npos);
    return error.message();
  };
  config.optimizer.kind = train::OptimizerKind::kAdamW;
  train::check_resumable(of_adam, config, {64, "u,v"}, world);
  config.optimizer.kind = train::OptimizerKind::kLamb;  // the same names of states
  CHECK(message(of_adam) ==
        str("this run cannot go on from ", of_adam.path(), ": --optimizer is lamb, the checkpoint's is adam"));

  const ScratchFolder other(world);
  train::RunConfig plain = rig.config;
  plain.optimizer.kind = train::OptimizerKind::kSgd;
  plain.optimizer.momentum = 0.0;
  CheckpointRig without_state(world, other.path(), plain);
  without_state.checkpoints.save({1, 0, 16}, std::nullopt);
  const CheckpointReader of_sgd(world, other.path());
  CHECK(of_sgd.has_optimizer());
  train::check_resumable(of_sgd, plain, {64, "u,v"}, world);
  train::restore(of_sgd, without_state.engine, without_state.mesh, world);
  config = plain;
  config.optimizer.momentum = 0.9;
  CHECK(message(of_sgd).find("--optimizer sgd with --momentum 0.9 keeps momentum_buffer, the checkpoint holds none") !=
        std::string::npos);
  config.optimizer.kind = train::OptimizerKind::kLars;
  CHECK(message(of_sgd).find("--optimizer is lars, the checkpoint's is sgd") != std::string::npos);
}

TEST_CASE("resume: which checkpoint") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  train::RunConfig config = CheckpointRig::make_config(world.size(), 2);
  config.run_dir = folder.path();
  CHECK_FALSE(train::find_resume(config, world));
  config.checkpoint.resume = "auto";
  CHECK_FALSE(train::find_resume(config, world));
  config.checkpoint.resume = "none";
  for (const char* nothing : {"checkpoints", "nowhere"}) {  // Megatron's --load: a new training, with a warning
    config.checkpoint.load = folder.file(nothing);
    CHECK_FALSE(train::find_resume(config, world));
  }
  config.checkpoint.load.clear();
  config.checkpoint.resume = "latest";
  CHECK(agreed_error(world, [&] { train::find_resume(config, world); }).error_class() == ErrorClass::kMissingInput);
  config.checkpoint.resume = folder.file("nowhere.h5");
  CheckpointRig rig(world, folder.file("checkpoints"));
  rig.checkpoints.prepare("");
  rig.checkpoints.save({7, 0, 0}, std::nullopt);
  for (const char* name : {"auto", "latest"}) {
    config.checkpoint.resume = name;
    CHECK(train::find_resume(config, world) == folder.file("checkpoints/step-000000007.h5"));
  }
  rig.checkpoints.save({8, 0, 0}, loss_of(2.0));
  rig.checkpoints.save({9, 0, 0}, loss_of(3.0));
  for (const auto& [given, found] : {std::pair{"", "9"}, {"checkpoints/latest", "9"}, {"checkpoints/best", "8"}}) {
    config.checkpoint.resume = folder.file(given);
    CHECK(train::find_resume(config, world) == folder.file(str("checkpoints/step-00000000", found, ".h5")));
    train::RunConfig loading = config;
    loading.checkpoint.resume = "none";
    loading.checkpoint.load = folder.file(given);
    CHECK(train::find_resume(loading, world) == train::find_resume(config, world));
  }
}

TEST_CASE("resume: a flipped bit in any group of tensors is found, on all ranks") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  CheckpointRig rig(world, folder.path());
  rig.checkpoints.save({1, 0, 0}, std::nullopt);
  const std::string path = train::resolve_checkpoint(folder.path());
  world.barrier();
  const CheckpointReader whole(world, path);
  train::restore(whole, rig.engine, rig.mesh, world);
  for (const std::string& group : train::state_groups(rig.engine)) {
    const auto* const tensor = whole.find(train::dataset_path(group, "blocks.0.mlp.fc1.weight"));
    REQUIRE(tensor != nullptr);
    const auto flip = [&] {
      world.barrier();
      if (world.rank() == 0) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(tensor->offset + 42);
        const auto byte = static_cast<char>(file.get() ^ 4);
        file.seekp(tensor->offset + 42);
        file.put(byte);
      }
      world.barrier();
    };
    flip();
    const Error error = agreed_error(world, [&] { train::restore(whole, rig.engine, rig.mesh, world); });
    CHECK(error.error_class() == ErrorClass::kBadData);
    CHECK(error.message().find(tensor->path) != std::string::npos);
    flip();
  }
  train::restore(whole, rig.engine, rig.mesh, world);
}
