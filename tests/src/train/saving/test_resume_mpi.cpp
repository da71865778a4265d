// Resuming by all ranks: which checkpoint it is, and that what does not fit or is damaged is refused on all alike.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "src/base/log.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/train/engine.h"
#include "src/train/run_folder.h"
#include "src/train/saving/engine_state.h"
#include "src/train/saving/resume.h"
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
  const std::string many(30000, ',');  // their names are not all told
  CHECK(agreed_error(world,
                     [&] {
                       train::check_resumable(file, rig.config, {64, many}, world);
                     })
            .message()
            .size() < 2000);
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

namespace {

// Flips bits of a byte of the file, for all ranks.
void flip(const comm::MpiGroup& world, const std::string& path, int64_t offset) {
  world.barrier();
  if (world.rank() == 0) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const auto byte = static_cast<char>(file.get() ^ 4);
    file.seekp(offset);
    file.put(byte);
  }
  world.barrier();
}

void flip_value(const comm::MpiGroup& world, const std::string& path) {
  const int64_t offset = CheckpointReader(world, path).tensors().front().offset;
  flip(world, path, offset + 42);
}

std::string found(const train::RunConfig& config, const comm::MpiGroup& world) {
  return train::Resumption(config.checkpoint, config.run_dir, world).path();
}

}  // namespace

TEST_CASE("resume: which checkpoint") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  train::RunConfig config = CheckpointRig::make_config(world.size(), 2);
  config.run_dir = folder.path();
  CHECK(found(config, world).empty());
  config.checkpoint.resume = "auto";
  CHECK(found(config, world).empty());
  config.checkpoint.resume = "none";
  for (const char* nothing : {"checkpoints", "nowhere"}) {  // Megatron's --load: a new training, with a warning
    config.checkpoint.load = folder.file(nothing);
    CHECK(found(config, world).empty());
  }
  config.checkpoint.load.clear();
  config.checkpoint.resume = "latest";
  CHECK(agreed_error(world, [&] { found(config, world); }).error_class() == ErrorClass::kMissingInput);
  config.checkpoint.resume = folder.file("nowhere.h5");
  CHECK(agreed_error(world, [&] { found(config, world); }).error_class() == ErrorClass::kMissingInput);
  CheckpointRig rig(world, folder.file("checkpoints"));
  rig.checkpoints.prepare("");
  rig.checkpoints.save({7, 0, 0}, std::nullopt);
  for (const char* name : {"auto", "latest"}) {
    config.checkpoint.resume = name;
    CHECK(found(config, world) == folder.file("checkpoints/step-000000007.h5"));
  }
  rig.checkpoints.save({8, 0, 0}, loss_of(2.0));
  rig.checkpoints.save({9, 0, 0}, loss_of(3.0));
  for (const auto& [given, step] : {std::pair{"", "9"}, {"checkpoints/latest", "9"}, {"checkpoints/best", "8"}}) {
    config.checkpoint.resume = folder.file(given);
    CHECK(found(config, world) == folder.file(str("checkpoints/step-00000000", step, ".h5")));
    train::RunConfig loading = config;
    loading.checkpoint.resume = "none";
    loading.checkpoint.load = folder.file(given);
    CHECK(found(loading, world) == found(config, world));
  }
}

TEST_CASE("resume: --load takes the newest checkpoint of a run that was killed before it wrote 'latest'") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  CheckpointRig rig(world, folder.file("checkpoints"));
  rig.checkpoints.prepare("");
  rig.checkpoints.save({7, 0, 0}, std::nullopt);
  rig.checkpoints.save({8, 0, 0}, std::nullopt);
  world.barrier();
  if (world.rank() == 0) {
    std::filesystem::remove(folder.file("checkpoints/latest"));
  }
  world.barrier();
  train::RunConfig config = CheckpointRig::make_config(world.size(), 2);
  for (const std::string& given : {folder.path(), folder.file("checkpoints")}) {
    config.checkpoint.load = given;
    CHECK(found(config, world) == folder.file("checkpoints/step-000000008.h5"));
  }
}

TEST_CASE("resume: a run goes on in its own folder by --load too, and what no step was done in is used anew") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  train::RunConfig config = CheckpointRig::make_config(world.size(), 2);
  config.name = "folder";
  config.run_dir = folder.file("run");
  train::resolve(config, world.size());
  const auto on_rank_0 = [&](const auto& change) {
    world.barrier();
    if (world.rank() == 0) change();
    world.barrier();
  };
  // Killed among the first files, and in the first save.
  { train::RunFolder(config, world).open(config, world); }
  close_log_file();
  on_rank_0([&] {
    CHECK(std::filesystem::file_size(config.run_dir + "/metrics.jsonl") == 0);
    std::filesystem::create_directory(config.run_dir + "/checkpoints");
    std::ofstream(config.run_dir + "/checkpoints/step-000000000.h5.3fa9c07e.partial") << "half";
  });
  {
    const train::RunFolder anew(config, world);
    CHECK_FALSE(anew.is_continued());
    world.barrier();
    CHECK_FALSE(std::filesystem::exists(config.run_dir + "/config.yaml"));
    world.barrier();
    train::MetricsLog metrics = anew.open(config, world).metrics;
    metrics.write({{"kind", "start"}});
    metrics.write({{"kind", "step"}, {"step", 1}});
  }
  close_log_file();
  world.barrier();
  CHECK_FALSE(std::filesystem::exists(config.run_dir + "/checkpoints/step-000000000.h5.3fa9c07e.partial"));
  config.checkpoint.load = folder.file("elsewhere");
  CHECK(agreed_error(world, [&] { train::RunFolder(config, world); }).error_class() == ErrorClass::kCannotCreate);
  for (const char* inside : {"run", "run/checkpoints"}) {
    config.checkpoint.load = folder.file(inside);
    CHECK(train::RunFolder(config, world).is_continued());
  }
  on_rank_0([&] { std::ofstream(config.run_dir + "/summary.json") << "{}"; });
  { train::RunFolder(config, world).open(config, world); }
  close_log_file();
  world.barrier();
  CHECK_FALSE(std::filesystem::exists(config.run_dir + "/summary.json"));  // it was of the earlier part
}

TEST_CASE("resume: without a good 'latest' auto takes the newest whole checkpoint, latest names it") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  train::RunConfig config = CheckpointRig::make_config(world.size(), 3);
  config.run_dir = folder.path();
  CheckpointRig rig(world, folder.file("checkpoints"), 3);
  rig.checkpoints.prepare("");
  const auto file_of = [&](int step) { return folder.file(str("checkpoints/step-00000000", step, ".h5")); };
  for (const int step : {7, 8, 9}) {
    rig.checkpoints.save({step, 0, 0}, std::nullopt);
  }
  const auto set_latest = [&](const std::string& text) {
    world.barrier();
    if (world.rank() == 0) {
      std::filesystem::remove(folder.file("checkpoints/latest"));
      if (!text.empty()) {
        std::ofstream(folder.file("checkpoints/latest")) << text;
      }
    }
    world.barrier();
  };
  const auto expect = [&](int step) {
    config.checkpoint.resume = "auto";
    CHECK(found(config, world) == file_of(step));
    config.checkpoint.resume = "latest";
    const Error error = agreed_error(world, [&] { found(config, world); });
    CHECK((error.error_class() == ErrorClass::kBadData || error.error_class() == ErrorClass::kMissingInput));
    CHECK(error.hint().find(file_of(step) + " is whole") != std::string::npos);
  };
  for (const char* text : {"", "\n", "../elsewhere\n", "step-000000019.h5\n"}) {
    CAPTURE(text);
    set_latest(text);
    expect(9);
  }
  set_latest("step-000000009.h5\n");
  flip(world, file_of(9), 4096 + 60);  // HDF5's own structures
  expect(8);
  set_latest("");
  expect(8);
  world.barrier();
  if (world.rank() == 0) {
    std::filesystem::resize_file(file_of(8), 0);
  }
  world.barrier();
  expect(7);
  flip(world, file_of(7), 4096 + 60);
  for (const char* name : {"auto", "latest"}) {
    config.checkpoint.resume = name;
    CHECK(agreed_error(world, [&] { found(config, world); }).hint().find("no other one that is whole") !=
          std::string::npos);
  }
  CHECK(std::filesystem::exists(file_of(9)));  // nothing was set aside: none is whole
}

TEST_CASE("resume: values found damaged while they are read: auto falls back, and sets the file aside") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  train::RunConfig config = CheckpointRig::make_config(world.size(), 3);
  config.run_dir = folder.path();
  CheckpointRig rig(world, folder.file("checkpoints"), 3);
  rig.checkpoints.prepare("");
  const auto file_of = [&](int step) { return folder.file(str("checkpoints/step-00000000", step, ".h5")); };
  for (const int step : {7, 8, 9}) {
    rig.checkpoints.save({step, 0, 0}, std::nullopt);
  }
  flip_value(world, file_of(9));
  flip_value(world, file_of(8));
  config.checkpoint.resume = "latest";
  {
    train::Resumption resumption(config.checkpoint, config.run_dir, world);
    CHECK(resumption.path() == file_of(9));
    const Error damage =
        agreed_error(world, [&] { train::restore(*resumption.checkpoint(), rig.engine, rig.mesh, world); });
    const Error error = agreed_error(world, [&] { resumption.fall_back(damage); });
    CHECK(error.message() == damage.message());
    CHECK(error.hint().find(file_of(8)) != std::string::npos);
  }
  config.checkpoint.resume = "auto";
  train::Resumption resumption(config.checkpoint, config.run_dir, world);
  for (const int step : {9, 8}) {
    CHECK(resumption.path() == file_of(step));
    const Error damage =
        agreed_error(world, [&] { train::restore(*resumption.checkpoint(), rig.engine, rig.mesh, world); });
    CHECK(damage.error_class() == ErrorClass::kBadData);
    resumption.fall_back(damage);
  }
  CHECK(resumption.path() == file_of(7));
  train::restore(*resumption.checkpoint(), rig.engine, rig.mesh, world);
  resumption.settle();
  world.barrier();
  for (const int step : {9, 8}) {
    CHECK_FALSE(std::filesystem::exists(file_of(step)));
    CHECK(std::filesystem::exists(file_of(step) + ".damaged"));
  }
  config.checkpoint.resume = "latest";
  CHECK(found(config, world) == file_of(7));
  rig.checkpoints.save({8, 0, 0}, std::nullopt);  // on the way it came to, nothing is overwritten
  rig.checkpoints.save({9, 0, 0}, std::nullopt);
  CHECK(found(config, world) == file_of(9));
  CHECK(std::filesystem::exists(file_of(9) + ".damaged"));
}

TEST_CASE(
    "resume: what is damaged is set aside before 'latest' names another, so that an end between them loses nothing") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  train::RunConfig config = CheckpointRig::make_config(world.size(), 3);
  config.run_dir = folder.path();
  config.checkpoint.resume = "auto";
  CheckpointRig rig(world, folder.file("checkpoints"), 3);
  rig.checkpoints.prepare("");
  rig.checkpoints.save({8, 0, 0}, std::nullopt);
  rig.checkpoints.save({9, 0, 0}, std::nullopt);
  const std::string damaged = folder.file("checkpoints/step-000000009.h5");
  flip(world, damaged, 4096 + 60);
  if (world.rank() == 0) {  // the name cannot be moved
    std::filesystem::remove(folder.file("checkpoints/latest"));
    std::filesystem::create_directory(folder.file("checkpoints/latest"));
  }
  world.barrier();
  const train::Resumption resumption(config.checkpoint, config.run_dir, world);
  CHECK(resumption.path() == folder.file("checkpoints/step-000000008.h5"));
  CHECK(agreed_error(world, [&] { resumption.settle(); }).message().find("latest") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(damaged));
  CHECK(std::filesystem::exists(damaged + ".damaged"));
}

TEST_CASE("resume: a checkpoint that the user names sets damaged later ones of its folder aside, and those alone") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  train::RunConfig config = CheckpointRig::make_config(world.size(), 4);
  config.run_dir = folder.path();
  CheckpointRig rig(world, folder.file("checkpoints"), 4);
  rig.checkpoints.prepare("");
  const auto file_of = [&](int step) { return folder.file(str("checkpoints/step-00000000", step, ".h5")); };
  for (const int step : {6, 7, 8, 9}) {
    rig.checkpoints.save({step, 0, 0}, std::nullopt);
  }
  flip(world, file_of(6), 4096 + 60);
  flip(world, file_of(9), 4096 + 60);
  const auto settle = [&] {
    train::Resumption(config.checkpoint, config.run_dir, world).settle();
    world.barrier();
  };
  const auto there = [&](int step) { return std::filesystem::exists(file_of(step)); };
  config.checkpoint.resume = file_of(7);
  config.run_dir = folder.file("another");
  settle();
  CHECK(there(9));  // of another run
  world.barrier();
  config.run_dir = folder.path();
  settle();
  CHECK_FALSE(there(9));
  CHECK(std::filesystem::exists(file_of(9) + ".damaged"));
  CHECK(there(8));
  CHECK(there(6));
  flip(world, file_of(8), 4096 + 60);
  config.checkpoint.load = std::exchange(config.checkpoint.resume, "none");
  settle();
  CHECK_FALSE(there(8));
  CHECK(std::filesystem::exists(file_of(8) + ".damaged"));
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
    flip(world, path, tensor->offset + 42);
    const Error error = agreed_error(world, [&] { train::restore(whole, rig.engine, rig.mesh, world); });
    CHECK(error.error_class() == ErrorClass::kBadData);
    CHECK(error.message().find(tensor->path) != std::string::npos);
    flip(world, path, tensor->offset + 42);
  }
  train::restore(whole, rig.engine, rig.mesh, world);
}
