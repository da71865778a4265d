// The start of a run on several ranks: agreement on arguments, files read by one rank for all, the run folder.
#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "parallel/comm/mpi_group.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/commands/console.h"
#include "src/train/load_run_config.h"
#include "src/train/run_folder.h"
#include "tests/support/thrown_error.h"

namespace {

using namespace vit_hybrid;
namespace fs = std::filesystem;

// The same path on all ranks, another one in every program run.
std::string scratch_path(const comm::MpiGroup& world) {
  const std::string name = str("vit_hybrid_test_run_start_", getpid());
  return world.broadcast((fs::temp_directory_path() / name).string(), 0);
}

void remove_for_all(const std::string& path, const comm::MpiGroup& world) {
  world.barrier();
  if (world.rank() == 0) fs::remove_all(path);
  world.barrier();
}

ErrorClass class_of(const std::function<void()>& function) {
  return testing::thrown_error(function).error_class();
}

TEST_CASE("run start: the same words pass, others are refused on every rank") {
  const auto world = comm::MpiGroup::world();
  CHECK_NOTHROW(commands::agree_on_start(world, {"--dp", "2"}));
  if (world.size() < 2) {
    MESSAGE("one rank cannot disagree");
    return;
  }
  const std::string mine = world.rank() == world.size() - 1 ? "3" : "2";
  CHECK(class_of([&] { commands::agree_on_start(world, {"--dp", mine}); }) == ErrorClass::kUsage);
}

TEST_CASE("run start: a file that only rank 0 sees is read for all") {
  const auto world = comm::MpiGroup::world();
  const std::string path = scratch_path(world);
  if (world.rank() == 0) std::ofstream(path) << "depth: 3\n";
  CHECK(commands::read_for_all(world, world.rank() == 0 ? path : "/nowhere") == "depth: 3\n");
  remove_for_all(path, world);
  CHECK(class_of([&] { commands::read_for_all(world, path); }) == ErrorClass::kMissingInput);
}

TEST_CASE("run start: the run folder is made once, known to all, and never made of another run's") {
  const auto world = comm::MpiGroup::world();
  const std::string path = scratch_path(world);
  train::RunConfig config;
  config.run_dir = path + "/deep/run";
  config.name = "folder";
  train::resolve(config, world.size());
  const auto folder = train::RunFolder::create(config, world);
  CHECK(folder.path() == config.run_dir);
  world.barrier();
  CHECK(fs::is_directory(folder.checkpoints_path()));
  CHECK(fs::exists(folder.path() + "/out.log"));
  // The configuration that lies there is the one that runs.
  const auto again = train::load_run_config({"--config", folder.path() + "/config.yaml"}, {}, train::read_local_file);
  CHECK(again.problems.empty());
  CHECK(again.config.name == "folder");
  CHECK(again.config.parallel.dp == world.size());
  CHECK(again.config.run_dir.empty());
  {
    auto metrics = folder.open_metrics(world);
    metrics.write({{"kind", "start"}});
    world.barrier();
    std::ifstream file(folder.path() + "/metrics.jsonl");
    std::string first, second;
    std::getline(file, first);
    CHECK(first.starts_with("{\"kind\":\"start\",\"time\":"));
    CHECK_FALSE(std::getline(file, second));
  }
  CHECK(class_of([&] { train::RunFolder::create(config, world); }) == ErrorClass::kCannotCreate);
  config.run_dir = folder.path() + "/config.yaml/below";
  CHECK(class_of([&] { train::RunFolder::create(config, world); }) == ErrorClass::kCannotCreate);
  close_log_file();
  remove_for_all(path, world);
}

}  // namespace
