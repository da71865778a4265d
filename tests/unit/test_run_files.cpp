// Files of a run: the folder, records, out.log, docs/options.md.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/commands/command.h"
#include "src/train/metrics_log.h"
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

TEST_CASE("run folder: a new or empty folder is taken, any other refused") {
  const TemporaryFolder folder;
  CHECK_NOTHROW(make_empty_folder(folder / "a/b/c"));
  CHECK(fs::is_directory(folder / "a/b/c"));
  CHECK_NOTHROW(make_empty_folder(folder / "a/b/c"));
  CHECK(class_of([&] { make_empty_folder(folder / "a"); }) == ErrorClass::kCannotCreate);
  std::ofstream(folder / "file") << "x";
  CHECK(class_of([&] { make_empty_folder(folder / "file"); }) == ErrorClass::kCannotCreate);
  CHECK(class_of([&] { make_empty_folder(folder / "file/below"); }) == ErrorClass::kCannotCreate);
}

TEST_CASE("run folder: the default name says run and time") {
  RunConfig config;
  config.runs_root = "somewhere";
  config.name = "short";
  const std::string path = default_run_dir(config);
  CHECK(path.starts_with("somewhere/short-20"));
  CHECK(path.size() == std::string("somewhere/short-20260101-010101").size());
}

TEST_CASE("metrics: one object a line, in order, with all digits") {
  const TemporaryFolder folder;
  MetricsLog log(folder / "metrics.jsonl");
  log.write({{"kind", "step"}, {"loss", 0.1 + 0.2}, {"grad_norm", std::numeric_limits<double>::quiet_NaN()}});
  CHECK(content_of(folder / "metrics.jsonl") ==
        "{\"kind\":\"step\",\"loss\":0.30000000000000004,\"grad_norm\":null}\n");
  log.write({{"kind", "valid"}, {"rmse", {1.0, 1e-300}}});
  const std::string text = content_of(folder / "metrics.jsonl");
  const auto second = Json::parse(text.substr(text.find('\n') + 1));
  CHECK(second["rmse"][1].get<double>() == 1e-300);
  MetricsLog().write({{"kind", "nowhere"}});
  CHECK(class_of([&] { MetricsLog(folder / "no/metrics.jsonl"); }) == ErrorClass::kCannotCreate);
  MetricsLog full("/dev/full");
  CHECK(class_of([&] { full.write({{"kind", "step"}}); }) == ErrorClass::kIo);
}

TEST_CASE("metrics: a JSON file is whole, and replaces an older one") {
  const TemporaryFolder folder;
  write_json_file(folder / "summary.json", {{"loss", 1}});
  write_json_file(folder / "summary.json", {{"loss", 2}});
  CHECK(Json::parse(content_of(folder / "summary.json"))["loss"] == 2);
  CHECK_FALSE(fs::exists(folder / "summary.json.part"));
  CHECK(class_of([&] { write_json_file(folder / "no/x", {}); }) == ErrorClass::kCannotCreate);
}

TEST_CASE("log: the file holds what was said before it was there, and what is written for it alone") {
  const TemporaryFolder folder;
  log_to_file("before");
  open_log_file(folder / "out.log");
  log_to_file("after");
  show_progress("never in the file");
  close_log_file();
  log_to_file("too late");
  CHECK(content_of(folder / "out.log").ends_with("before\nafter\n"));
  CHECK(class_of([&] { open_log_file(folder / "no/out.log"); }) == ErrorClass::kCannotCreate);
}

TEST_CASE("docs/options.md is what the program prints") {
  const fs::path source = fs::path(__FILE__).parent_path().parent_path().parent_path();
  CHECK_MESSAGE(content_of(source / "docs/options.md") == commands::options_markdown(),
                "run: vit_hybrid options > docs/options.md");
}

}  // namespace
