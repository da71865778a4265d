// The table at the end of a run: its columns are those of the task, and none are of a validation that was not done. The
// records of a run: their order, and what becomes of those that cannot be written.
#include "src/report/run_log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <system_error>
#include <vector>

#include "src/base/error.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;

namespace {

EpochRecord some_epoch() {
  EpochRecord epoch;
  epoch.epoch = 1;
  epoch.samples = 30;
  epoch.train_loss = 0.25;
  epoch.seconds = 2.0;
  return epoch;
}

using Lines = std::vector<std::string>;

StepRecord some_step(int64_t number) {
  StepRecord step;
  step.step = number;
  step.samples = 8;
  step.seconds.step = 0.5;
  return step;
}

std::vector<Json> records_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> records;
  for (std::string line; std::getline(file, line);) {
    records.push_back(Json::parse(line));
  }
  return records;
}

// Of this process, while it lives.
class NoRoomInFiles {
 public:
  NoRoomInFiles() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoRoomInFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  NoRoomInFiles(const NoRoomInFiles&) = delete;
  NoRoomInFiles& operator=(const NoRoomInFiles&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

// Takes the place of an open file of this process, and has room for nothing until somebody reads.
class FullPipe {
 public:
  explicit FullPipe(const std::string& path) {
    REQUIRE(pipe2(ends_.data(), O_NONBLOCK) == 0);
    while (write(ends_[1], "x", 1) == 1)
      ++num_written_;
    for (const int end : ends_)
      fcntl(end, F_SETFL, 0);
    int found = -1;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code is_closed;
      const bool is_it = std::filesystem::read_symlink(entry, is_closed) == std::filesystem::canonical(path);
      if (is_it) found = std::stoi(entry.path().filename());
    }
    REQUIRE(found >= 0);
    REQUIRE(dup2(ends_[1], found) == found);
  }
  ~FullPipe() {
    for (const int end : ends_)
      close(end);
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  // Waits for it.
  std::string next_line() const {
    std::string line;
    for (char letter = ' '; letter != '\n' && read(ends_[0], &letter, 1) == 1;)
      line += letter;
    return line.substr(num_written_);
  }

 private:
  std::array<int, 2> ends_{};
  size_t num_written_ = 0;
};

}  // namespace

TEST_CASE("run log: records of steps are in the file in their order, before those that come after them") {
  const testing::ScratchFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  RunLog log({}, 1000);
  log.set_total_steps(1000);
  log.open(MetricsLog(path));
  for (int64_t step = 1; step <= 30; ++step) {
    log.step(some_step(step));
    if (step % 10 == 0) log.event({{"kind", "checkpoint"}, {"step", step}});
  }
  EpochRecord epoch = some_epoch();
  epoch.step = 30;
  log.epoch(epoch);
  log.step(some_step(31));
  log.validation({1, 31, {}, 1.0});
  log.step(some_step(32));
  log.settle();
  const auto records = records_in(path);
  Lines kinds, expected;
  for (const Json& record : records) {
    kinds.push_back(record.at("kind").get<std::string>() + " " + std::to_string(record.at("step").get<int64_t>()));
  }
  for (int step = 1; step <= 32; ++step) {
    const std::string number = std::to_string(step);
    expected.push_back("step " + number);
    if (step % 10 == 0) expected.push_back("checkpoint " + number);
    if (step == 30) expected.push_back("epoch " + number);
    if (step == 31) expected.push_back("valid " + number);
  }
  CHECK((kinds == expected));
}

TEST_CASE("run log: nobody waits until a step is written before the next record") {
  const testing::ScratchFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  RunLog log({}, 1000);
  log.open(MetricsLog(path));
  const FullPipe pipe(path);
  auto step = std::async(std::launch::async, [&] { log.step(some_step(1)); });
  CHECK((step.wait_for(std::chrono::minutes(1)) == std::future_status::ready));  // the pipe is full, and stays so
  CHECK(Json::parse(pipe.next_line()).at("step") == 1);
  log.settle();
}

TEST_CASE("run log: the last step is written when the log ends, and without a file there is nobody to wait for") {
  const testing::ScratchFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  {
    RunLog log({}, 1000);
    log.step(some_step(1));  // no record
    log.settle();
    log.open(MetricsLog(path));
    log.step(some_step(2));
  }
  const auto records = records_in(path);
  REQUIRE(records.size() == 1);
  CHECK(records[0].at("step") == 2);
  CHECK(records[0].at("samples_per_s") == 16.0);
}

TEST_CASE("run log: of an even number of steps the median lies between the two in the middle") {
  RunLog log({}, 1000);
  for (const double seconds : {9.0, 0.5, 1.0}) {  // the first one warms up
    StepRecord step = some_step(1);
    step.seconds.step = seconds;
    log.step(step);
  }
  CHECK(log.median_samples_per_second() == doctest::Approx(1.5 * static_cast<double>(some_step(1).samples)));
}

TEST_CASE("run log: a step that cannot be written is told to the next who waits for it, once, and nothing follows it") {
  const testing::ScratchFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  RunLog log({}, 1000);
  log.open(MetricsLog(path));
  {
    const NoRoomInFiles full;
    log.step(some_step(1));
    CHECK_THROWS_AS(log.event({{"kind", "other"}}), Error);
    log.settle();
    log.step(some_step(2));
    CHECK_THROWS_AS(log.step(some_step(3)), Error);
  }
  log.settle();
  CHECK(records_in(path).empty());
}

TEST_CASE("epoch table: without validation it has no columns of one") {
  CHECK((epoch_table({some_epoch()}, {}) == Lines{" epoch    train loss     samples/s",  //
                                                  "     1      0.250000         15.00"}));
}

TEST_CASE("epoch table: a forecast's validation, and the untrained network") {
  Evaluation figures;
  figures.loss = 0.5;
  figures.rmse = {0.1, 0.3};
  figures.persistence_rmse = {0.4, 0.6};
  const Lines table = epoch_table({some_epoch()}, {{0, 0, figures, 1.0}, {1, 8, figures, 1.0}});
  REQUIRE(table.size() == 4);
  CHECK(table[0] == " epoch    train loss      val loss          RMSE   persistence     samples/s");
  CHECK(table[1] == "     0             -      0.500000      0.200000      0.500000             -");
  CHECK(table[2] == "     1      0.250000      0.500000      0.200000      0.500000         15.00");
}

TEST_CASE("epoch table: a classification's validation") {
  Evaluation figures;
  figures.loss = 0.5;
  figures.top1 = 0.25;
  figures.top5 = 0.75;
  CHECK((epoch_table({some_epoch()}, {{1, 8, figures, 1.0}}) ==
         Lines{" epoch    train loss      val loss         top-1         top-5     samples/s",
               "     1      0.250000      0.500000      0.250000      0.750000         15.00"}));
}
