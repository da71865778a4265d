// Regular files: what is none is refused at once, links at new files' names are not followed.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "data/reading/posix_file.h"
#include "src/base/files.h"
#include "src/base/folder_lock.h"
#include "src/base/log.h"
#include "src/checkpoint/checkpoint_folder.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/report/metrics_log.h"
#include "tests/support/contains.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace {

using namespace vit_hybrid;
using testing::contains;
using testing::thrown_error;
namespace fs = std::filesystem;

TEST_CASE("regular file: read within a bound; FIFOs, devices and folders are refused without waiting") {
  const testing::ScratchFolder folder;
  std::ofstream(folder.file("a")) << "0123456789";
  CHECK(read_regular_file(folder.file("a"), 10) == "0123456789");
  CHECK_FALSE(read_regular_file("/proc/self/status", 1 << 20).empty());  // of a length that nobody knows
  const Error large = thrown_error([&] { read_regular_file(folder.file("a"), 9); });
  CHECK(large.error_class() == ErrorClass::kBadData);
  CHECK(contains(large.message(), "has more than 9 bytes"));
  mkfifo(folder.file("fifo").c_str(), 0600);
  fs::create_directory(folder.file("folder"));
  fs::create_symlink(folder.file("fifo"), folder.file("link"));
  for (const auto& [path, text] : {std::pair{folder.file("fifo"), "is a FIFO, a file is needed"},
                                   {folder.file("link"), "is a FIFO, a file is needed"},
                                   {std::string("/dev/zero"), "/dev/zero is a device"},
                                   {folder.file("folder"), "is a folder"}}) {
    CAPTURE(path);
    CHECK(contains(thrown_error([&] { read_regular_file(path, 100); }).message(), text));
    CHECK(contains(thrown_error([&] { data::PosixFile(path, data::PosixFile::Access::kRead); }).message(), text));
  }
  const Error written = thrown_error([&] { open_regular_file(folder.file("fifo"), O_WRONLY | O_CREAT); });
  CHECK(written.error_class() == ErrorClass::kBadData);
  CHECK(thrown_error([&] { read_regular_file(folder.file("no"), 1); }).error_class() == ErrorClass::kMissingInput);
  const Error long_path = thrown_error([&] { read_regular_file(std::string(100000, 'p'), 1); });
  CHECK(long_path.error_class() == ErrorClass::kMissingInput);
  CHECK(contains(long_path.message(), "p... (100000 bytes) is not there (File name too long)"));
  CHECK(contains(thrown_error([&] { read_regular_file(folder.file("link"), 1, Links::kRefuse); }).message(),
                 "is a symbolic link"));
}

TEST_CASE("regular file: a FIFO in the place of a run's file is refused") {
  const testing::ScratchFolder folder;
  for (const char* name : {"latest", "best", "metrics.jsonl", "out.log", "step-000000001.h5"}) {
    mkfifo(folder.file(name).c_str(), 0600);
  }
  const train::CheckpointFolder checkpoints(folder.path());
  CHECK_FALSE(checkpoints.target(train::kLatest));
  CHECK_FALSE(checkpoints.target(train::kBest));
  const auto is_fifo = [](const Error& error) {
    return error.error_class() == ErrorClass::kBadData && contains(error.message(), "is a FIFO");
  };
  CHECK(is_fifo(thrown_error([&] { train::resolve_checkpoint(folder.path()); })));
  CHECK(is_fifo(thrown_error([&] { train::resolve_checkpoint(folder.file("best")); })));
  CHECK(is_fifo(thrown_error([&] { train::CheckpointReader(folder.file("step-000000001.h5")); })));
  CHECK(is_fifo(thrown_error([&] { train::MetricsLog(folder.file("metrics.jsonl"), OldFile::kAppend); })));
  CHECK(is_fifo(thrown_error([&] { open_log_file(folder.file("out.log"), OldFile::kAppend); })));
}

TEST_CASE("regular file: each job has its own name for an unfinished file, and any job's is known for one") {
  const std::string unmarked = temporary_name("f/1990.h5");
  set_job_mark("3fa9c07e");
  const std::string marked = temporary_name("f/1990.h5");
  set_job_mark("");
  CHECK(marked != unmarked);
  CHECK(completed_name(unmarked) == "f/1990.h5");
  CHECK(completed_name(marked) == "f/1990.h5");
  CHECK(completed_name("f/1990.h5").empty());
  CHECK(completed_name("f/1990.3fa9c07.partial") == "f/1990.3fa9c07");  // no mark
  CHECK(completed_name("f/1990.3fa9c07g.partial") == "f/1990.3fa9c07g");
  CHECK(completed_name("a.partial") == "a");
}

TEST_CASE("regular file: a link at the name of a new file is replaced, its target untouched") {
  const testing::ScratchFolder folder;
  std::ofstream(folder.file("precious")) << "precious";
  const auto link_at = [&](const std::string& path) { fs::create_symlink(folder.file("precious"), path); };
  link_at(folder.file("new"));
  data::PosixFile(folder.file("new"), data::PosixFile::Access::kCreate).write(0, "x", 1);
  CHECK_FALSE(fs::is_symlink(folder.file("new")));
  link_at(folder.file("update"));
  CHECK(contains(
      thrown_error([&] { data::PosixFile(folder.file("update"), data::PosixFile::Access::kUpdate); }).message(),
      "is a symbolic link"));
  link_at(data::temporary_name(folder.file("latest")));
  train::CheckpointFolder(folder.path()).point("latest", "step-000000001.h5");
  link_at(data::temporary_name(folder.file("summary.json")));
  train::write_json_file(folder.file("summary.json"), {{"a", 1}});
  CHECK(read_regular_file(folder.file("precious"), 100) == "precious");
  CHECK(read_regular_file(folder.file("new"), 100) == "x");
  CHECK(read_regular_file(folder.file("latest"), 100) == "step-000000001.h5\n");
  CHECK(contains(read_regular_file(folder.file("summary.json"), 100), "\"a\": 1"));
}

}  // namespace
