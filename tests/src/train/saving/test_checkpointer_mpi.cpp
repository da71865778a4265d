// Saving by all ranks: the file holds every tensor and optimizer state bit for bit, names move when it is complete, and
// what cannot be saved is refused on all ranks alike.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "src/base/text.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/kernels/gemm/device_products.h"
#include "src/train/saving/checkpointer.h"
#include "src/train/saving/resume.h"
#include "tests/support/checkpoint_rig.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using train::CheckpointReader;
namespace fs = std::filesystem;

namespace {

constexpr auto kReplicated = zero::ZeroStage::kReplicated;
constexpr auto kSharded = zero::ZeroStage::kOptimizerState;

Experiment experiment(model::VitOptions model, const char* precision) {
  Experiment result;
  result.options.model = model;
  result.options.model.depth = 3;
  result.options.precision = zero::make_precision_policy(precision);
  result.options.bucket_bytes = 4 << 10;
  result.global_batches = {5, 3};
  return result;
}

std::vector<Layout> layouts(int ranks) {
  switch (ranks) {
    case 1:
      return {{1, 1, 1, kReplicated}};
    case 2:
      return {{2, 1, 1, kSharded}, {2, 1, 1, kReplicated}, {1, 2, 1, kSharded}, {1, 1, 2, kSharded}};
    case 4:
      return {{2, 2, 1, kSharded}, {1, 2, 2, kReplicated}, {4, 1, 1, kSharded}};
    default:
      return {{2, 2, 2, kSharded}, {2, 2, 2, kReplicated}, {4, 2, 1, kSharded}};
  }
}

// Of one pipeline stage; the file has all.
void check_group(const CheckpointReader& file, const std::string& group, const TensorsByName& expected) {
  for (const auto& [name, tensor] : expected) {
    CAPTURE(group);
    CAPTURE(name);
    const std::string path = train::dataset_path(group, name);
    REQUIRE(file.find(path) != nullptr);
    const at::Tensor stored = file.read(path);
    CHECK(stored.to(at::kDouble).equal(tensor));
    train::TensorChecksum sum;
    sum.add(file.find(path)->shape, std::vector<int64_t>(file.find(path)->shape.size(), 0), stored);
    CHECK(sum.text() == file.find(path)->checksum);
  }
}

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace

TEST_CASE("checkpoint: every tensor and optimizer state is in the file bit for bit, in any layout") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const std::vector<std::pair<const char*, zero::OptimizerKind>> cases = {
      {"fp32", zero::OptimizerKind::kAdam}, {"fp64", zero::OptimizerKind::kAdam}, {"fp32", zero::OptimizerKind::kLars}};
  for (const auto& [precision, optimizer] : cases) {
    Experiment trained = experiment(small_forecaster(), precision);
    trained.options.optimizer.kind = optimizer;
    const auto states = zero::optimizer_state_names(trained.options.optimizer);
    std::vector<Layout> chosen = layouts(world.size());
    if (precision == std::string("fp64") || optimizer != zero::OptimizerKind::kAdam) {
      chosen.resize(1);  // other types and states do not change who writes what
    }
    for (const Layout& layout : chosen) {
      CAPTURE(layout.text());
      const ScratchFolder folder(world);
      Training training(trained, layout, world);
      training.run_steps();
      training.save(folder.file("state.h5"));
      const TrainingOutcome gathered = training.outcome();
      const CheckpointReader file(world, folder.file("state.h5"));
      CHECK(file.info().optimizer_steps == 2);
      CHECK(file.info().optimizer == zero::optimizer_name(optimizer));
      CHECK(file.optimizer_states() == states);
      CHECK(file.tensors().size() == (1 + states.size()) * train::global_tensors(trained.options.model).size());
      check_group(file, train::kParametersGroup, gathered.parameters);
      for (const std::string& state : states) {
        check_group(file, train::dataset_path(train::kOptimizerGroup, state), gathered.states.at(state));
      }
    }
  }
}

TEST_CASE("checkpoint: latest and best move, the last k and those stay") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const std::string path = folder.file("run/checkpoints");
  CheckpointRig rig(world, path);
  rig.checkpoints.prepare("");
  const std::vector<double> losses = {3.0, 1.0, 2.0, 4.0, 1.5};
  for (size_t i = 0; i < losses.size(); ++i) {
    CHECK(rig.checkpoints.wants_best(loss_of(losses[i])) == (i < 2));
    rig.checkpoints.save({static_cast<int64_t>(i + 1), 0, static_cast<int64_t>(i)}, loss_of(losses[i]));
  }
  const auto files = files_in(path);
  CHECK(files.contains("step-000000002.h5"));  // the best
  CHECK(files.contains("step-000000005.h5"));
  CHECK(files.size() == 5);  // and the one before, and the two names
  CHECK(train::resolve_checkpoint(path) == path + "/step-000000005.h5");
  CHECK(train::CheckpointFolder(path).target(train::kBest) == path + "/step-000000002.h5");
  const CheckpointReader file(world, path);
  CHECK(file.info().metric == "loss");
  CHECK(file.info().metric_value == 1.5);
  CHECK(file.info().num_samples == 64);
  CHECK(file.info().samples_of_epoch == 4);
  world.barrier();

  CheckpointRig next(world, path);  // a resumed run knows the best of the one before
  next.checkpoints.prepare(path + "/step-000000005.h5");
  CHECK_FALSE(next.checkpoints.wants_best(loss_of(1.25)));
  CHECK(next.checkpoints.wants_best(loss_of(0.5)));
}

TEST_CASE("checkpoint: a table of kernels of any size is saved and found again") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  CheckpointRig rig(world, folder.path());
  kernels::KernelTable table{"GPU", {}};
  while (table.text().size() < 200000) {
    table.choices[str("forward R", table.choices.size())] = {std::string(5000, 'f'), "tile 128x256", 2.5, 2.0};
  }
  rig.checkpoints.prepare("");
  kernels::kernel_table() = table;
  rig.checkpoints.save({1, 0, 0}, {});
  kernels::kernel_table() = {};
  const CheckpointReader file(world, folder.path());
  CHECK(kernels::KernelTable::parse(file.info().kernels) == table);
}

TEST_CASE("checkpoint: a figure that is not finite is never the best") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  CheckpointRig rig(world, folder.path());
  rig.checkpoints.prepare("");
  rig.checkpoints.save({1, 0, 0}, loss_of(std::nan("")));
  CHECK_FALSE(train::CheckpointFolder(folder.path()).target(train::kBest));
  world.barrier();
  rig.checkpoints.save({2, 0, 0}, loss_of(2.0));
  rig.checkpoints.save({3, 0, 0}, loss_of(std::nan("")));
  CHECK(train::CheckpointFolder(folder.path()).target(train::kBest) == folder.file("step-000000002.h5"));
}

TEST_CASE("checkpoint: the folder of another run is refused, and left as it is") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const std::string path = folder.file("a");
  CheckpointRig rig(world, path);
  rig.checkpoints.prepare("");
  rig.checkpoints.save({1, 0, 0}, std::nullopt);
  rig.checkpoints.save({2, 0, 0}, std::nullopt);
  world.barrier();
  const auto files = files_in(path);
  for (const std::string& resumed : {std::string(), folder.file("b/step-000000009.h5")}) {
    CheckpointRig other(world, path);
    const Error error = agreed_error(world, [&] { other.checkpoints.prepare(resumed); });
    CHECK(error.error_class() == ErrorClass::kCannotCreate);
    CHECK(error.message().find(path) != std::string::npos);
  }
  CHECK(files_in(path) == files);
  CheckpointRig older(world, path);  // going back to an older one of its own is allowed
  older.checkpoints.prepare(path + "/step-000000001.h5");
}

TEST_CASE("checkpoint: written in the background while the state changes, it is the state of before") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  CheckpointRig rig(world, folder.path());
  rig.config.checkpoint.async = true;
  rig.checkpoints.prepare("");
  const auto before = testing::state_checksums(rig.engine, rig.config.model, rig.mesh, rig.world);
  rig.checkpoints.save({1, 0, 0}, std::nullopt);
  CHECK(rig.checkpoints.is_saving());
  rig.engine.parameters().values().zero_();
  CHECK_FALSE(fs::exists(folder.file("latest")));  // not before all have written
  world.barrier();
  rig.checkpoints.save({2, 0, 0}, std::nullopt);  // ends the first
  CHECK(train::resolve_checkpoint(folder.path()) == folder.file("step-000000001.h5"));
  rig.checkpoints.complete();
  CHECK_FALSE(rig.checkpoints.is_saving());
  CHECK(train::resolve_checkpoint(folder.path()) == folder.file("step-000000002.h5"));
  const CheckpointReader first(world, folder.file("step-000000001.h5"));
  for (const auto& [path, checksum] : before) {
    CAPTURE(path);
    CHECK(first.find(path)->checksum == checksum.text());
  }
  train::restore(first, rig.engine, rig.mesh, world);
  const auto after = testing::state_checksums(rig.engine, rig.config.model, rig.mesh, rig.world);
  for (const auto& [path, checksum] : before) {
    CHECK(after.at(path).value() == checksum.value());
  }
}

TEST_CASE("checkpoint: a folder that cannot be made is one agreed error, and nothing is saved with keep 0") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  if (world.rank() == 0) {
    std::ofstream(folder.file("file")) << "no folder";
  }
  world.barrier();
  CheckpointRig rig(world, folder.file("file/checkpoints"));
  const Error error = agreed_error(world, [&] { rig.checkpoints.prepare(""); });
  CHECK(error.error_class() == ErrorClass::kCannotCreate);
  CheckpointRig off(world, folder.file("nothing"), 0);
  off.checkpoints.prepare("");
  off.checkpoints.save({1, 0, 0}, std::nullopt);
  CHECK_FALSE(off.checkpoints.is_on());
  CHECK_FALSE(fs::exists(folder.file("nothing")));
}

TEST_CASE("checkpoint: the file goes away under a save, and the names stay where they were") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const std::string path = folder.file("checkpoints");
  CheckpointRig rig(world, path);
  rig.checkpoints.prepare("");
  rig.checkpoints.save({1, 0, 0}, std::nullopt);
  if (world.rank() == 0) {
    fs::create_directory(path + "/step-000000002.h5");  // a file cannot be renamed over a folder
  }
  world.barrier();
  const Error error = agreed_error(world, [&] { rig.checkpoints.save({2, 0, 0}, std::nullopt); });
  CHECK(error.error_class() == ErrorClass::kCannotCreate);
  CHECK(error.message().find("step-000000002.h5") != std::string::npos);
  CHECK(train::resolve_checkpoint(path) == path + "/step-000000001.h5");
  rig.checkpoints.save({3, 0, 0}, std::nullopt);
  CHECK(train::resolve_checkpoint(path) == path + "/step-000000003.h5");
}
