// When a run stops by itself or is told to: time limits, signals, and the folder of its checkpoints.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "src/base/signals.h"
#include "src/base/timer.h"
#include "src/checkpoint/checkpoint_folder.h"
#include "src/report/metrics_log.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
namespace fs = std::filesystem;

TEST_CASE("time limit: the earlier of seconds and the job's end, with a margin for a step and a save") {
  const TimeLimit none(0.0, 0, 1000);
  CHECK(std::isinf(none.seconds_left()));
  CHECK_FALSE(none.is_near(1e9, 1e9));
  const TimeLimit seconds(100.0, 0, 1000);
  CHECK(seconds.name() == "--time-limit");
  CHECK(seconds.seconds_left() <= 100.0);
  CHECK(seconds.seconds_left() > 90.0);
  CHECK_FALSE(seconds.is_near(20.0, 20.0));
  CHECK(seconds.is_near(30.0, 21.0));
  const TimeLimit job(100.0, 1050, 1000);
  CHECK(job.name() == "the end of the Slurm job");
  CHECK(job.seconds_left() <= 50.0);
  const TimeLimit later_job(100.0, 2000, 1000);
  CHECK(later_job.name() == "--time-limit");
  CHECK(TimeLimit(0.0, 900, 1000).is_near(0.0, 0.0));
}

TEST_CASE("signals: names with commas between them") {
  CHECK(parse_signals("USR1,USR2,TERM,INT") == std::vector<int>{SIGUSR1, SIGUSR2, SIGTERM, SIGINT});
  CHECK(parse_signals(" sigterm ") == std::vector<int>{SIGTERM});
  CHECK(parse_signals("").empty());
  CHECK(signal_name(SIGUSR2) == "SIGUSR2");
  CHECK(signal_name(7) == "signal 7");
  CHECK(std::string(testing::thrown_error([&] { parse_signals(std::string(5000, '0')); }).what()).size() < 400);
  for (const char* wrong : {"KILL", "USR1,,TERM", "10"}) {
    CAPTURE(wrong);
    CHECK(testing::thrown_error([&] { parse_signals(wrong); }).error_class() == ErrorClass::kUsage);
  }
}

// In a process of its own: what has arrived stays.
TEST_CASE("signals: SIGTERM before the first step is seen after another one, and is none of it afterwards") {
  const pid_t child = fork();
  if (child == 0) {
    watch_stop_signals({SIGUSR1, SIGTERM});
    raise(SIGUSR1);
    const bool is_kept = signal_before_first_step() == 0 && stop_signal() == SIGUSR1;
    raise(SIGTERM);
    const bool ends = signal_before_first_step() == SIGTERM && stop_signal() == SIGUSR1;
    begin_first_step();
    _exit(is_kept && ends && signal_before_first_step() == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("checkpoint folder: names, and what is kept") {
  const testing::ScratchFolder scratch;
  const CheckpointFolder folder(scratch.file("run/checkpoints"));
  folder.create();
  CHECK(folder.file_of(12) == folder.path() + "/step-000000012.h5");
  CHECK_FALSE(folder.target(kLatest));
  const auto now = fs::file_time_type::clock::now();
  for (int step = 1; step <= 6; ++step) {
    std::ofstream(folder.file_of(step)) << step;
    fs::last_write_time(folder.file_of(step), now + std::chrono::seconds(step));
  }
  std::ofstream(folder.file_of(7) + ".partial") << "half";
  std::ofstream(folder.path() + "/notes.txt") << "mine";
  folder.point(kBest, folder.file_of(2));
  folder.point(kLatest, folder.file_of(5));
  folder.point(kLatest, folder.file_of(1));
  CHECK(folder.target(kLatest) == folder.file_of(1));
  folder.prune(2);
  std::vector<int> left;
  for (int step = 1; step <= 6; ++step) {
    if (fs::exists(folder.file_of(step))) {
      left.push_back(step);
    }
  }
  CHECK(left == std::vector<int>{1, 2, 5, 6});
  CHECK_FALSE(fs::exists(folder.file_of(7) + ".partial"));
  CHECK(fs::exists(folder.path() + "/notes.txt"));
}

TEST_CASE("checkpoint folder: by step, the newest first; what is set aside is neither removed nor replaced") {
  const testing::ScratchFolder scratch;
  const CheckpointFolder folder(scratch.path());
  for (const int step : {7, 10, 9, 8}) {
    std::ofstream(folder.file_of(step)) << step;
  }
  CHECK(folder.newest_first() ==
        std::vector<std::string>{folder.file_of(10), folder.file_of(9), folder.file_of(8), folder.file_of(7)});
  CHECK(folder.set_aside(folder.file_of(10)) == folder.file_of(10) + ".damaged");
  std::ofstream(folder.file_of(10)) << "again";
  CHECK(folder.set_aside(folder.file_of(10)) == folder.file_of(10) + ".damaged-2");
  std::ofstream(scratch.file("latest.0123.partial")) << "half";
  folder.prune(1);
  CHECK(folder.newest_first().size() == 1);
  CHECK(fs::exists(folder.file_of(10) + ".damaged"));
  CHECK(fs::exists(folder.file_of(10) + ".damaged-2"));
  CHECK_FALSE(fs::exists(scratch.file("latest.0123.partial")));
}

TEST_CASE("metrics of a resumed run are added behind those before, of which the last may be half a line") {
  const testing::ScratchFolder scratch;
  const std::string path = scratch.file("metrics.jsonl");
  std::ofstream(path) << "{\"step\":1}\n{\"st";
  MetricsLog(path, OldFile::kAppend).write({{"step", 2}});
  MetricsLog(path, OldFile::kAppend).write({{"step", 3}});
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "{\"step\":1}");
  CHECK(lines[1] == "{\"st");
  CHECK(lines[2].starts_with("{\"step\":2,"));
  CHECK(lines[3].starts_with("{\"step\":3,"));
}

TEST_CASE("checkpoint folder: space that is not there is refused with both numbers") {
  const testing::ScratchFolder scratch;
  const CheckpointFolder folder(scratch.path());
  folder.require_space(1, "two checkpoints");
  const Error error =
      testing::thrown_error([&] { folder.require_space(int64_t{1} << 60, "two checkpoints of 600 PB"); });
  CHECK(error.error_class() == ErrorClass::kCannotCreate);
  CHECK(error.message().find("left, but two checkpoints of 600 PB need 1048576 TiB") != std::string::npos);
  CHECK(error.hint().find("--checkpoint-dir") != std::string::npos);
}
