// Saving by all ranks: the file holds every tensor and optimizer state bit for bit, names move when it is complete, and
// what cannot be saved or resumed is refused on all ranks alike.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "parallel/mesh/device_mesh.h"
#include "parallel/tensor/device_kernels.h"
#include "src/base/text.h"
#include "src/train/checkpoint/checkpoint_reader.h"
#include "src/train/checkpoint/checkpointer.h"
#include "src/train/checkpoint/engine_state.h"
#include "src/train/checkpoint/resume.h"
#include "src/train/engine_options.h"
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

// A run's parts as train() puts them together, without data.
struct Rig {
  explicit Rig(const comm::MpiGroup& group, std::string folder, int64_t keep = 2)
      : Rig(group, std::move(folder), make_config(group.size(), keep)) {}
  Rig(const comm::MpiGroup& group, std::string folder, train::RunConfig run)
      : world(group),
        config(std::move(run)),
        mesh(mesh::ParallelDims(group.size(), 1, 1), group, c10::Device(c10::kCPU)),
        engine(train::engine_options(config), mesh),
        log(train::MetricsLog(), {}, 1),
        checkpoints(config, group, mesh, engine, log, std::move(folder), {64, "u,v"}) {}

  static train::RunConfig make_config(int ranks, int64_t keep) {
    train::RunConfig config;
    config.model = small_forecaster();
    config.parallel.dp = ranks;
    config.parallel.micro_batch_size = 1;
    config.checkpoint.keep = keep;
    config.checkpoint.every = 1;
    return config;
  }

  const comm::MpiGroup& world;
  train::RunConfig config;
  mesh::DeviceMesh mesh;
  train::Engine engine;
  train::RunLog log;
  train::Checkpointer checkpoints;
};

train::Evaluation loss_of(double loss) {
  train::Evaluation figures;
  figures.samples = 1;
  figures.loss = loss;
  figures.rmse = {loss};
  return figures;
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
    for (const Layout& layout : layouts(world.size())) {
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
  Rig rig(world, path);
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

  Rig next(world, path);  // a resumed run knows the best of the one before
  next.checkpoints.prepare(path + "/step-000000005.h5");
  CHECK_FALSE(next.checkpoints.wants_best(loss_of(1.25)));
  CHECK(next.checkpoints.wants_best(loss_of(0.5)));
}

TEST_CASE("checkpoint: a table of kernels of any size is saved and found again") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  Rig rig(world, folder.path());
  tensor::KernelTable table("GPU");
  while (table.text().size() < 200000) {
    table.choose(str("forward R", table.choices().size()), {std::string(5000, 'f'), "tile 128x256", 2.5, 2.0});
  }
  rig.checkpoints.prepare("");
  tensor::kernel_table() = table;
  rig.checkpoints.save({1, 0, 0}, {});
  tensor::kernel_table() = {};
  const CheckpointReader file(world, folder.path());
  CHECK(tensor::KernelTable::parse(file.info().kernels) == table);
}

TEST_CASE("checkpoint: a figure that is not finite is never the best") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  Rig rig(world, folder.path());
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
  Rig rig(world, path);
  rig.checkpoints.prepare("");
  rig.checkpoints.save({1, 0, 0}, std::nullopt);
  rig.checkpoints.save({2, 0, 0}, std::nullopt);
  world.barrier();
  const auto files = files_in(path);
  for (const std::string& resumed : {std::string(), folder.file("b/step-000000009.h5")}) {
    Rig other(world, path);
    const Error error = agreed_error(world, [&] { other.checkpoints.prepare(resumed); });
    CHECK(error.error_class() == ErrorClass::kCannotCreate);
    CHECK(error.message().find(path) != std::string::npos);
  }
  CHECK(files_in(path) == files);
  Rig older(world, path);  // going back to an older one of its own is allowed
  older.checkpoints.prepare(path + "/step-000000001.h5");
}

TEST_CASE("checkpoint: written in the background while the state changes, it is the state of before") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  Rig rig(world, folder.path());
  rig.config.checkpoint.async = true;
  rig.checkpoints.prepare("");
  const auto before = train::state_checksums(rig.engine, rig.config.model, rig.mesh);
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
  const auto after = train::state_checksums(rig.engine, rig.config.model, rig.mesh);
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
  Rig rig(world, folder.file("file/checkpoints"));
  const Error error = agreed_error(world, [&] { rig.checkpoints.prepare(""); });
  CHECK(error.error_class() == ErrorClass::kCannotCreate);
  Rig off(world, folder.file("nothing"), 0);
  off.checkpoints.prepare("");
  off.checkpoints.save({1, 0, 0}, std::nullopt);
  CHECK_FALSE(off.checkpoints.is_on());
  CHECK_FALSE(fs::exists(folder.file("nothing")));
}

TEST_CASE("checkpoint: the file goes away under a save, and the names stay where they were") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const std::string path = folder.file("checkpoints");
  Rig rig(world, path);
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

TEST_CASE("resume: what does not fit is refused with what differs") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  Rig rig(world, folder.path());
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
  Rig rig(world, folder.path());
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
  Rig without_state(world, other.path(), plain);
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
  train::RunConfig config = Rig::make_config(world.size(), 2);
  config.run_dir = folder.path();
  CHECK_FALSE(train::find_resume(config, world));
  config.checkpoint.resume = "auto";
  CHECK_FALSE(train::find_resume(config, world));
  config.checkpoint.resume = "latest";
  CHECK(agreed_error(world, [&] { train::find_resume(config, world); }).error_class() == ErrorClass::kMissingInput);
  config.checkpoint.resume = folder.file("nowhere.h5");
  Rig rig(world, folder.file("checkpoints"));
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
  }
}

TEST_CASE("resume: a flipped bit in any group of tensors is found, on all ranks") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  Rig rig(world, folder.path());
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
