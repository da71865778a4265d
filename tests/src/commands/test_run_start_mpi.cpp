// The start of a run on several ranks: agreement on arguments, files read by one rank for all, the run folder.
#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/commands/command.h"
#include "src/config/load_run_config.h"
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
  CHECK(train::read_for_all(world, world.rank() == 0 ? path : "/nowhere") == "depth: 3\n");
  remove_for_all(path, world);
  CHECK(class_of([&] { train::read_for_all(world, path); }) == ErrorClass::kMissingInput);
}

TEST_CASE("run start: the run folder is made once, known to all, and never made of another run's") {
  const auto world = comm::MpiGroup::world();
  const std::string path = scratch_path(world);
  train::RunConfig config;
  config.run_dir = path + "/deep/run";
  config.name = "folder";
  train::resolve(config, world.size());
  {
    const train::RunFolder folder(config, world);
    CHECK(folder.path() == config.run_dir);
    CHECK(class_of([&] { train::RunFolder(config, world); }) == ErrorClass::kCannotCreate);  // it is in use
    auto records = folder.open(config, world);
    world.barrier();
    CHECK(fs::is_directory(folder.checkpoints_path()));
    CHECK(fs::exists(folder.path() + "/out.log"));
    // The configuration that lies there is the one that runs.
    const auto again = train::load_run_config({"--config", folder.path() + "/config.yaml"}, {}, train::read_local_file);
    CHECK(again.problems.empty());
    CHECK(again.config.name == "folder");
    CHECK(again.config.parallel.dp == world.size());
    CHECK(again.config.run_dir.empty());
    records.metrics.write({{"kind", "start"}});
    records.metrics.write({{"kind", "step"}});
    world.barrier();
    std::ifstream file(folder.path() + "/metrics.jsonl");
    for (const char* const kind : {"start", "step"}) {
      std::string line;
      std::getline(file, line);
      CHECK(line.starts_with(str("{\"kind\":\"", kind, "\",\"time\":")));
    }
    std::string more;
    CHECK_FALSE(std::getline(file, more));
    world.barrier();
  }
  CHECK(class_of([&] { train::RunFolder(config, world); }) == ErrorClass::kCannotCreate);
  const std::string run = config.run_dir;
  config.run_dir = run + "/config.yaml/below";
  CHECK(class_of([&] { train::RunFolder(config, world); }) == ErrorClass::kCannotCreate);
  world.barrier();
  CHECK_FALSE(fs::exists(run + "/run.lock"));
  close_log_file();
  remove_for_all(path, world);
}

TEST_CASE("run start: a start that fails leaves no folder, or one that may be used again") {
  const auto world = comm::MpiGroup::world();
  const std::string path = scratch_path(world);
  train::RunConfig config;
  config.run_dir = path + "/run";
  config.name = "folder";
  train::resolve(config, world.size());
  { const train::RunFolder folder(config, world); }  // failed before the first step
  world.barrier();
  CHECK_FALSE(fs::exists(path));
  world.barrier();
  {
    const train::RunFolder folder(config, world);  // failed in it
    auto records = folder.open(config, world);
    records.metrics.write({{"kind", "start"}});
    records.metrics.write({{"kind", "valid"}});
  }
  close_log_file();
  world.barrier();
  CHECK(fs::exists(config.run_dir + "/metrics.jsonl"));
  world.barrier();
  {
    const train::RunFolder folder(config, world);
    CHECK_FALSE(folder.is_continued());
    world.barrier();
    CHECK_FALSE(fs::exists(config.run_dir + "/metrics.jsonl"));
    world.barrier();
  }
  world.barrier();
  if (world.rank() == 0) {
    fs::create_directories(config.run_dir);
    std::ofstream(config.run_dir + "/notes.txt") << "mine";
  }
  world.barrier();
  CHECK(class_of([&] { train::RunFolder(config, world); }) == ErrorClass::kCannotCreate);
  CHECK(fs::exists(config.run_dir + "/notes.txt"));
  remove_for_all(path, world);
}

}  // namespace
