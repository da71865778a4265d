// FolderLock: who is refused, who takes over, that of many exactly one does, and that nothing is left at the end.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "data/reading/posix_file.h"
#include "src/base/folder_lock.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "tests/support/contains.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace {

using namespace vit_hybrid;
using testing::contains;
using testing::thrown_error;
namespace fs = std::filesystem;

constexpr double kRenewal = 0.2;

std::unique_ptr<FolderLock> make_lock(const testing::ScratchFolder& folder, double renewal = kRenewal) {
  return std::make_unique<FolderLock>(folder.path(), "run folder", renewal);
}

int64_t num_files(const testing::ScratchFolder& folder) {
  return std::distance(fs::directory_iterator(folder.path()), {});
}

// A lock file of a process on another machine, renewed so many seconds ago.
void write_foreign_lock(const testing::ScratchFolder& folder, double seconds_ago, const std::string& token,
                        const std::string& name = "run.lock") {
  std::ofstream(folder.file(name)) << "vit_hybrid lock 1\ntoken " << token << "\nhost far\nkernel other/ns\nprocess 7\n"
                                   << "start 1\njob here/77\nrestart 0\nrenewal 0.2\n";
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);  // what a local file system's times are taken from
  const double then = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - seconds_ago;
  const timespec time{static_cast<time_t>(then), static_cast<long>(1e9 * (then - std::floor(then)))};
  const timespec times[] = {time, time};
  utimensat(AT_FDCWD, folder.file(name).c_str(), times, 0);
}

std::string token_of(char digit) {
  return std::string(32, digit);
}

// Runs `body` in a process of its own, which ends with its result without any destructor.
pid_t start(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(body());
  }
  return child;
}

int result_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("folder lock: the second is refused by name, and the folder is free again afterwards") {
  const testing::ScratchFolder folder;
  auto first = make_lock(folder);
  REQUIRE(first->try_take(FolderLock::Doubt::kRefuse));
  CHECK_FALSE(first->loser());
  first->require();
  require_folders();
  auto second = make_lock(folder);
  for (const auto doubt : {FolderLock::Doubt::kRefuse, FolderLock::Doubt::kWait}) {
    const Error error = thrown_error([&] { second->try_take(doubt); });
    CHECK(error.error_class() == ErrorClass::kCannotCreate);
    CHECK(contains(error.message(), str("the run folder ", folder.path(), " is in use by process ", getpid(), " on ")));
  }
  first.reset();
  CHECK(num_files(folder) == 0);
  CHECK(second->try_take(FolderLock::Doubt::kRefuse));
  second.reset();
  CHECK(num_files(folder) == 0);
}

TEST_CASE("folder lock: of a process that has ended it is taken over at once") {
  const testing::ScratchFolder folder;
  const pid_t child = start([&] {
    auto* const lock = new FolderLock(folder.path(), "run folder", 1000.0);
    return lock->try_take(FolderLock::Doubt::kRefuse) ? 0 : 1;
  });
  CHECK(result_of(child) == 0);
  CHECK(num_files(folder) == 1);
  auto lock = make_lock(folder);
  REQUIRE(lock->try_take(FolderLock::Doubt::kRefuse));
  REQUIRE(lock->loser());
  CHECK(lock->loser()->process == child);
  CHECK(contains(lock->remark(), str("taken over from process ", child, " on ")));
  CHECK(contains(lock->remark(), "which has ended"));
  lock->require();
  CHECK(num_files(folder) == 1);
}

TEST_CASE("folder lock: a job that Slurm restarted takes it from its earlier start, which writes nothing more") {
  const testing::ScratchFolder folder;
  setenv("SLURM_JOB_ID", "77", 1);
  auto before = make_lock(folder);
  REQUIRE(before->try_take(FolderLock::Doubt::kRefuse));
  setenv("SLURM_RESTART_COUNT", "1", 1);
  auto after = make_lock(folder);
  REQUIRE(after->try_take(FolderLock::Doubt::kRefuse));
  CHECK(contains(after->remark(), "Slurm job 77, an earlier start of this job"));
  const Error error = thrown_error([&] { before->require(); });
  CHECK(error.error_class() == ErrorClass::kCannotCreate);
  CHECK(contains(error.message(), "was taken over by process "));
  CHECK_FALSE(holds_folders());
  CHECK(thrown_error([&] { data::rename_file("a", "b"); }).message() == error.message());
  before.reset();  // it does not remove the lock, which is another's
  after->require();
  CHECK(holds_folders());
  after.reset();
  CHECK(num_files(folder) == 0);
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_RESTART_COUNT");
}

TEST_CASE("folder lock: from another machine it is taken over after three missed renewals, which one may wait for") {
  const testing::ScratchFolder folder;
  write_foreign_lock(folder, 0.1, token_of('a'));
  auto lock = make_lock(folder);
  CHECK(thrown_error([&] { lock->try_take(FolderLock::Doubt::kRefuse); }).error_class() == ErrorClass::kCannotCreate);
  CHECK_FALSE(lock->try_take(FolderLock::Doubt::kWait));
  CHECK(contains(lock->remark(), "belongs to process 7 on far, Slurm job 77"));
  write_foreign_lock(folder, 0.0, token_of('a'));  // it does so again
  CHECK(contains(thrown_error([&] { lock->try_take(FolderLock::Doubt::kWait); }).message(), "is in use by process 7"));
  write_foreign_lock(folder, 0.0, token_of('b'));
  const Timer timer;
  while (!lock->try_take(FolderLock::Doubt::kWait) && timer.seconds() < 30.0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(timer.seconds() > 3.0 * kRenewal - 0.05);  // the file system's clock ticks in steps
  CHECK(timer.seconds() < 30.0);
  CHECK(contains(lock->remark(), "which has not renewed its lock for "));
  lock.reset();
  CHECK(num_files(folder) == 0);
}

TEST_CASE("folder lock: who has lost one folder has lost the other, though it is alive") {
  const testing::ScratchFolder folder;
  const testing::ScratchFolder other_folder;
  auto before = make_lock(other_folder, 100.0);
  REQUIRE(before->try_take(FolderLock::Doubt::kRefuse));
  auto lock = make_lock(other_folder);
  CHECK(thrown_error([&] { lock->try_take(FolderLock::Doubt::kWait, LockHolder()); }).error_class() ==
        ErrorClass::kCannotCreate);
  REQUIRE(lock->try_take(FolderLock::Doubt::kWait, LockHolder::self(1.0)));
  CHECK(contains(lock->remark(), "which has lost its other folder"));
  CHECK_FALSE(holds_folders());
}

TEST_CASE("folder lock: the holder renews it") {
  const testing::ScratchFolder folder;
  auto lock = make_lock(folder, 0.1);
  REQUIRE(lock->try_take(FolderLock::Doubt::kRefuse));
  const auto begin = fs::last_write_time(folder.file("run.lock"));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(fs::last_write_time(folder.file("run.lock")) > begin + std::chrono::milliseconds(150));
}

TEST_CASE("folder lock: one that tells no sensible renewal counts as the usual one") {
  for (const char* renewal : {"nan", "inf", "-1", "0", "1e300"}) {
    CAPTURE(renewal);
    const testing::ScratchFolder folder;
    const auto write = [&](double seconds_ago) {
      write_foreign_lock(folder, seconds_ago, token_of('a'));
      const auto time = fs::last_write_time(folder.file("run.lock"));
      std::ofstream(folder.file("run.lock"), std::ios::app) << "renewal " << renewal << "\n";
      fs::last_write_time(folder.file("run.lock"), time);
    };
    write(1.0);
    CHECK(thrown_error([&] { make_lock(folder)->try_take(FolderLock::Doubt::kRefuse); }).error_class() ==
          ErrorClass::kCannotCreate);
    write(61.0);
    CHECK(make_lock(folder)->try_take(FolderLock::Doubt::kRefuse));
  }
}

TEST_CASE("folder lock: its end closes no file that another thread has just opened") {
  const testing::ScratchFolder folder;
  std::atomic<bool> ends{false};
  int64_t num_lost = 0;
  std::thread opener([&] {
    while (!ends) {
      std::vector<int> files;
      for (int i = 0; i < 200; ++i) {
        files.push_back(open("/dev/null", O_RDONLY));
      }
      for (const int file : files) {
        num_lost += close(file) != 0 ? 1 : 0;
      }
    }
  });
  for (int round = 0; round < 50; ++round) {
    auto lock = make_lock(folder);
    CHECK(lock->try_take(FolderLock::Doubt::kRefuse));
  }
  ends = true;
  opener.join();
  CHECK(num_lost == 0);
}

TEST_CASE("folder lock: takers that ended on their way are passed over, what they left is removed") {
  const testing::ScratchFolder folder;
  write_foreign_lock(folder, 9.0, token_of('a'));
  write_foreign_lock(folder, 8.0, token_of('b'), str("run.lock.after.", token_of('a')));
  write_foreign_lock(folder, 9.0, token_of('d'), str("run.lock.after.", token_of('c')));  // behind none
  write_foreign_lock(folder, 9.0, token_of('e'), str("run.lock.", token_of('e')));
  auto lock = make_lock(folder);
  REQUIRE(lock->try_take(FolderLock::Doubt::kRefuse));
  CHECK(num_files(folder) == 1);
  lock->require();
  // One who is just on the way counts as the holder.
  write_foreign_lock(folder, 0.0, token_of('f'), str("run.lock.after.", std::string(32, '0')));
  lock.reset();
  write_foreign_lock(folder, 9.0, token_of('a'));
  write_foreign_lock(folder, 0.0, token_of('b'), str("run.lock.after.", token_of('a')));
  auto other = make_lock(folder);
  CHECK(thrown_error([&] { other->try_take(FolderLock::Doubt::kRefuse); }).error_class() == ErrorClass::kCannotCreate);
}

TEST_CASE("folder lock: what is no lock's text counts by its time; what is no file is refused") {
  const testing::ScratchFolder folder;
  std::ofstream(folder.file("run.lock")) << "mine";
  auto lock = make_lock(folder);
  CHECK(contains(thrown_error([&] { lock->try_take(FolderLock::Doubt::kRefuse); }).message(), "an unknown process"));
  fs::last_write_time(folder.file("run.lock"), fs::last_write_time(folder.file("run.lock")) - std::chrono::seconds(61));
  CHECK(lock->try_take(FolderLock::Doubt::kRefuse));
  lock.reset();
  mkfifo(folder.file("run.lock").c_str(), 0600);
  auto other = make_lock(folder);
  CHECK(contains(thrown_error([&] { other->try_take(FolderLock::Doubt::kRefuse); }).message(), "is a FIFO"));
  fs::remove(folder.file("run.lock"));
  fs::create_directory(folder.file("run.lock"));
  const Error error = thrown_error([&] { other->try_take(FolderLock::Doubt::kRefuse); });
  CHECK(error.error_class() == ErrorClass::kCannotCreate);
  CHECK(contains(error.message(), "/run.lock is a folder, where the file that locks a folder belongs"));
}

// Several processes try at the same time; those that hold the folder at the end are counted. 0: it is this one's.
int num_winners(const testing::ScratchFolder& folder, int num_takers) {
  std::vector<pid_t> takers;
  for (int i = 0; i < num_takers; ++i) {
    takers.push_back(start([&, i] {
      auto* const lock = new FolderLock(folder.path(), "run folder", 100.0);
      while (!fs::exists(folder.file("go"))) {
      }
      bool is_mine = false;
      try {
        is_mine = lock->try_take(FolderLock::Doubt::kRefuse);
      } catch (const Error&) {
      }
      std::ofstream(folder.file(str("tried-", i))) << is_mine;
      while (!fs::exists(folder.file("stop"))) {
        usleep(1000);
      }
      if (!is_mine) {
        return 0;
      }
      lock->require();
      return 1;
    }));
  }
  std::ofstream(folder.file("go")) << "x";
  for (int i = 0; i < num_takers; ++i) {
    for (int n = 0; n < 20000 && !fs::exists(folder.file(str("tried-", i))); ++n) {
      usleep(1000);
    }
  }
  std::ofstream(folder.file("stop")) << "x";
  int winners = 0;
  for (const pid_t taker : takers) {
    winners += result_of(taker);
  }
  return winners;
}

TEST_CASE("folder lock: of eight that take it at once, new or left behind, exactly one has it") {
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const testing::ScratchFolder folder;
    if (round % 3 > 0) {
      write_foreign_lock(folder, 1000.0, token_of('a'));
    }
    if (round % 3 > 1) {
      write_foreign_lock(folder, 1000.0, token_of('b'), str("run.lock.after.", token_of('a')));
    }
    CHECK(num_winners(folder, 8) == 1);
  }
}

}  // namespace
