// The cache of kernel choices: what is kept, read again, replaced, or not used.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "src/base/log.h"
#include "src/base/text.h"
#include "src/machine/autotune.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::KernelChoice;
using train::KernelCache;

namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() { fs::remove_all(path_); }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  fs::path path_ = fs::temp_directory_path() / str("vit_hybrid_test_kernel_cache-", getpid());
};

const KernelChoice kBlockedChoice{"blocked", "measured: 1.5 times as fast as MKL", 10.0, 10.0};
const KernelChoice kLibraryChoice{"library", "measured: 1.2 times as fast as own blocks", 20.0, 20.0};

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

size_t num_files(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("kernel cache: what was kept is read again, of its own machine only") {
  const Folder folder;
  KernelCache cache(folder.path() + "/deep/down", {"machine A"});
  CHECK_FALSE(cache.read());
  CHECK(cache.keep(kBlockedChoice, SavedKernels::kUse) == kBlockedChoice);
  CHECK(KernelCache(folder.path() + "/deep/down", {"machine A"}).read() == kBlockedChoice);
  CHECK_FALSE(KernelCache(folder.path() + "/deep/down", {"machine B"}).read());
  CHECK(num_files(folder.path() + "/deep/down") == 1);
}

TEST_CASE(
    "kernel cache: of starts that measure at the same time the first one's choice counts for all; retuning replaces") {
  const Folder folder;
  KernelCache first(folder.path(), {"machine"});
  KernelCache second(folder.path(), {"machine"});
  CHECK_FALSE(first.read());
  CHECK_FALSE(second.read());
  CHECK(first.keep(kBlockedChoice, SavedKernels::kUse) == kBlockedChoice);
  CHECK(second.keep(kLibraryChoice, SavedKernels::kUse) == kBlockedChoice);
  CHECK(second.keep(kLibraryChoice, SavedKernels::kMeasureAgain) == kLibraryChoice);
  CHECK(first.read() == kLibraryChoice);
  CHECK(num_files(folder.path()) == 1);
}

TEST_CASE("kernel cache: what is damaged or no file of ours is not used, and replaced by the next choice") {
  const Folder folder;
  KernelCache good(folder.path(), {"machine"});
  good.keep(kBlockedChoice, SavedKernels::kUse);
  std::ifstream file(good.path());
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  set_log_speaker(false);
  const auto replaced = [](const std::string& text_with, const std::string& from, const std::string& to) {
    std::string result = text_with;
    result.replace(result.find(from), from.size(), to);
    return result;
  };
  const std::vector<std::string> damaged = {"",
                                            "x",
                                            text.substr(0, text.size() / 2),
                                            replaced(text, "blocked", "blocker"),
                                            replaced(text, "machine", "another"),
                                            replaced(text, kernels::kHostProblem, "something else"),
                                            std::string(200000, 'x'),
                                            std::string("\0\0\0", 3)};
  for (const std::string& bytes : damaged) {
    CAPTURE(bytes.size());
    write(good.path(), bytes);
    KernelCache cache(folder.path(), {"machine"});
    CHECK_FALSE(cache.read());
    CHECK(cache.keep(kLibraryChoice, SavedKernels::kUse) == kLibraryChoice);
    CHECK(KernelCache(folder.path(), {"machine"}).read() == kLibraryChoice);
  }
  fs::remove(good.path());
  REQUIRE(::mkfifo(good.path().c_str(), 0600) == 0);
  CHECK_FALSE(KernelCache(folder.path(), {"machine"}).read());  // at once
  fs::remove(good.path());
  write(folder.path() + "/elsewhere", text);
  fs::create_symlink(folder.path() + "/elsewhere", good.path());
  CHECK_FALSE(KernelCache(folder.path(), {"machine"}).read());
  set_log_speaker(true);
}

TEST_CASE("kernel cache: where nothing can be kept the choice still counts") {
  const Folder folder;
  fs::create_directories(folder.path());
  write(folder.path() + "/file", "x");
  set_log_speaker(false);
  for (const std::string& nowhere : {folder.path() + "/file/below", std::string()}) {
    KernelCache cache(nowhere, {"machine"});
    CHECK_FALSE(cache.read());
    CHECK(cache.keep(kBlockedChoice, SavedKernels::kUse) == kBlockedChoice);
  }
  set_log_speaker(true);
}

TEST_CASE(
    "kernel cache: settings of libraries and threads are part of the machine, numbers of threads and talk are not") {
  const char* const environment[] = {"PATH=/bin",
                                     "OMP_NUM_THREADS=4",
                                     "MKL_NUM_THREADS=4",
                                     "ONEDNN_VERBOSE=1",
                                     "ONEDNN_MAX_CPU_ISA=AVX2",
                                     "KMP_AFFINITY=compact",
                                     "OMP_DISPLAY_ENV=true",
                                     "MKL_CBWR=COMPATIBLE",
                                     "NOT_MKL_X=1",
                                     nullptr};
  CHECK(join(train::kernel_settings(environment)) ==
        "KMP_AFFINITY=compact, MKL_CBWR=COMPATIBLE, ONEDNN_MAX_CPU_ISA=AVX2");
}

TEST_CASE("kernel cache: a job on machines of several kinds has an entry of its own, whatever ranks are where") {
  const auto path = [](const std::vector<std::string>& machines) { return KernelCache("folder", machines).path(); };
  CHECK(path({"a", "a"}) == path({"a"}));
  CHECK(path({"b", "a", "b"}) == path({"a", "b"}));
  CHECK(path({"b", "a", "b"}) != path({"a"}));
  CHECK(path({"b", "a", "b"}) != path({"b"}));
}
