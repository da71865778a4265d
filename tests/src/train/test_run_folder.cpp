// Files of a run: the folder, records, out.log, docs/options.md.
#include <doctest/doctest.h>

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/commands/command.h"
#include "src/report/metrics_log.h"
#include "src/train/run_folder.h"
#include "tests/support/thrown_error.h"

namespace {

using namespace vit_hybrid;
using namespace vit_hybrid::train;
namespace fs = std::filesystem;

// A folder of its own for a test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_ = fs::temp_directory_path() / "vit_hybrid_test_run_files";
};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file, path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ErrorClass class_of(const std::function<void()>& function) {
  return testing::thrown_error(function).error_class();
}

TEST_CASE("run folder: what was made and stays empty is removed, what was there is not") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "old");
  {
    MadeFolders made;
    CHECK(made.make(folder / "new/b/c", ""));
    CHECK_FALSE(made.make(folder / "new/b/c/", ""));
    CHECK(made.make(folder / "kept/b", ""));
    CHECK_FALSE(made.make(folder / "old", ""));
    std::ofstream(folder / "kept/file") << "x";
    CHECK(class_of([&] { made.make(folder / "kept/file/below", ""); }) == ErrorClass::kCannotCreate);
  }
  CHECK(fs::is_directory(folder / "old"));
  CHECK_FALSE(fs::exists(folder / "new"));
  CHECK_FALSE(fs::exists(folder / "kept/b"));
  CHECK(fs::exists(folder / "kept/file"));
}

TEST_CASE("run folder: the default name says run and time") {
  const std::string path = default_run_dir("somewhere", "short");
  CHECK(path.starts_with("somewhere/short-20"));
  CHECK(path.size() == std::string("somewhere/short-20260101-010101").size());
}

TEST_CASE("metrics: one object a line, in order, with all digits") {
  const TemporaryFolder folder;
  MetricsLog log(folder / "metrics.jsonl");
  const auto before = static_cast<double>(std::time(nullptr));
  log.write({{"kind", "step"}, {"loss", 0.1 + 0.2}, {"grad_norm", std::numeric_limits<double>::quiet_NaN()}});
  CHECK(content_of(folder / "metrics.jsonl")
            .starts_with("{\"kind\":\"step\",\"loss\":0.30000000000000004,\"grad_norm\":null,\"time\":"));
  const double time = Json::parse(content_of(folder / "metrics.jsonl"))["time"].get<double>();
  CHECK(std::abs(time - before) < 86400.0);  // seconds since 1970; clocks are set while programs run
  log.write({{"kind", "valid"}, {"rmse", {1.0, 1e-300}}});
  const std::string text = content_of(folder / "metrics.jsonl");
  const auto second = Json::parse(text.substr(text.find('\n') + 1));
  CHECK(second["rmse"][1].get<double>() == 1e-300);
  MetricsLog().write({{"kind", "nowhere"}});
  CHECK(class_of([&] { MetricsLog(folder / "metrics.jsonl"); }) == ErrorClass::kCannotCreate);  // of another job
  CHECK(content_of(folder / "metrics.jsonl") == text);
  CHECK(class_of([&] { MetricsLog(folder / "no/metrics.jsonl"); }) == ErrorClass::kCannotCreate);
  CHECK(class_of([&] { MetricsLog("/dev/full"); }) == ErrorClass::kBadData);  // no regular file
  MetricsLog full(folder / "full.jsonl");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  getrlimit(RLIMIT_FSIZE, &usual);
  const rlimit none{0, usual.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  const ErrorClass of_full = class_of([&] { full.write({{"kind", "step"}}); });
  setrlimit(RLIMIT_FSIZE, &usual);
  CHECK(of_full == ErrorClass::kIo);
}

TEST_CASE("metrics: a run that goes on leaves out what comes again, and half a line") {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsLog log(path);
    log.write({{"kind", "start"}});
    log.write({{"kind", "valid"}, {"step", 0}});
    for (int step = 1; step <= 6; ++step) {
      log.write({{"kind", "step"}, {"step", step}, {"loss", 1.0 / step}});
      if (step % 2 == 0) log.write({{"kind", "epoch"}, {"epoch", step / 2}});  // counts for the step before it
      if (step == 3 || step == 6) log.write({{"kind", "checkpoint"}, {"step", step}});
    }
  }
  std::ofstream(path, std::ios::app) << "7\n{\"step\":2}\n{\"kind\":5,\"step\":1}\n{\"kind\":\"step\",\"st";
  const auto lines = [&] {
    std::vector<std::string> found;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const Json record = Json::parse(line);
      found.push_back(str(record["kind"].get<std::string>(), record.contains("step") ? record["step"].dump() : ""));
    }
    return join(found);
  };
  fs::create_symlink(folder / "elsewhere", path + ".partial");  // an old temporary name leads nowhere
  {
    MetricsLog log(path, OldFile::kAppend);
    log.cut_after(3);
    CHECK(lines() == "start, valid0, step1, step2, epoch, step3, checkpoint3");
    log.write({{"kind", "resume"}, {"step", 3}});
    log.write({{"kind", "step"}, {"step", 4}});
  }
  CHECK(lines() == "start, valid0, step1, step2, epoch, step3, checkpoint3, resume3, step4");
  CHECK_FALSE(fs::exists(folder / "elsewhere"));
  CHECK_FALSE(fs::exists(path + ".partial"));
  MetricsLog(path, OldFile::kAppend).cut_after(-1);
  CHECK(lines() == "start, resume3");
  MetricsLog().cut_after(3);
}

TEST_CASE("metrics: a JSON file is whole, and replaces an older one") {
  const TemporaryFolder folder;
  write_json_file(folder / "summary.json", {{"loss", 1}});
  write_json_file(folder / "summary.json", {{"loss", 2}});
  CHECK(Json::parse(content_of(folder / "summary.json"))["loss"] == 2);
  CHECK_FALSE(fs::exists(folder / "summary.json.partial"));
  CHECK(class_of([&] { write_json_file(folder / "no/x", {}); }) == ErrorClass::kCannotCreate);
}

TEST_CASE("log: the file holds what was said before it was there, and what is written for it alone") {
  const TemporaryFolder folder;
  log_to_file("before");
  open_log_file(folder / "out.log");
  log_to_file("after\x1b[31m");
  show_progress("never in the file");
  close_log_file();
  log_to_file("too late");
  CHECK(class_of([&] { open_log_file(folder / "out.log"); }) == ErrorClass::kCannotCreate);  // of another job
  CHECK(content_of(folder / "out.log").ends_with("before\nafter\\x1b[31m\n"));
  CHECK(class_of([&] { open_log_file(folder / "no/out.log"); }) == ErrorClass::kCannotCreate);
}

TEST_CASE("log: a line of progress is cut to the width of the terminal") {
  CHECK(fitted_text("step 12/200", 20) == "step 12/200");
  CHECK(fitted_text("step 12/200", 11) == "step 12/200");
  CHECK(fitted_text("step 12/200", 7) == "step 12");
  CHECK(fitted_text("step", 0).empty());
  CHECK(fitted_text("a\tb\x1b[2Jc\n", 40) == "a?b?[2Jc?");
  CHECK(fitted_text("\u00e9\u6f22z", 5) == "\u00e9\u6f22z");  // two columns each at most
  CHECK(fitted_text("\u00e9\u6f22z", 4) == "\u00e9\u6f22");
  CHECK(fitted_text("\u00e9\u6f22z", 3) == "\u00e9");
}

TEST_CASE("log: long work says what it is and how far, also where it is blocked; short work says nothing") {
  const TemporaryFolder folder;
  open_log_file(folder / "out.log");
  { const Progress progress("short work", 3, 10.0); }
  {
    Progress progress("reading 4 files", 4, 0.05);
    progress.add(3);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));  // as in a read that takes long
  }
  {
    const Progress progress("waiting", 0, 0.05);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  close_log_file();
  const std::string text = content_of(folder / "out.log");
  CHECK(text.find("short work") == std::string::npos);
  CHECK(text.find("reading 4 files: 75 % done, 0 s to go\n") != std::string::npos);
  CHECK(text.find("waiting: 0 s so far\n") != std::string::npos);
  size_t lines = 0;
  for (size_t at = text.find("reading"); at != std::string::npos; at = text.find("reading", at + 1)) {
    ++lines;
  }
  CHECK(lines >= 2);
  CHECK(lines <= 4);  // rarely: after 0.05, 0.1, 0.2 and 0.4 s
}

TEST_CASE("docs/options.md is what the program prints") {
  const fs::path source = fs::path(__FILE__).parent_path() / "../../..";
  CHECK_MESSAGE(content_of(source / "docs/options.md") == commands::options_markdown(),
                "run: vit_hybrid options > docs/options.md");
}

TEST_CASE("docs/schemas/configuration.schema.json is what the program prints") {
  const fs::path source = fs::path(__FILE__).parent_path() / "../../..";
  CHECK_MESSAGE(content_of(source / "docs/schemas/configuration.schema.json") == commands::configuration_schema(),
                "run: vit_hybrid options --schema > docs/schemas/configuration.schema.json");
}

}  // namespace
