// RunFolder: making the folder.
#include "src/train/run_folder.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/train/load_run_config.h"

namespace vit_hybrid::train {

namespace {

namespace fs = std::filesystem;

constexpr const char* kHint = "name another folder with --run-dir, or its parent with --runs-root";

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorClass::kCannotCreate, str("cannot use '", path, "' as run folder: ", why), kHint);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text << std::flush;
  if (!file) {
    throw Error(ErrorClass::kCannotCreate, str("cannot write '", path, "': ", std::strerror(errno)), kHint);
  }
}

// Two runs of one second get different folders.
std::string make_default_folder(const std::string& wanted) {
  std::string path = wanted;
  for (int n = 2; fs::exists(path); ++n) {
    path = str(wanted, "-", n);
  }
  make_empty_folder(path);
  return path;
}

// Whether `path` is the folder of an earlier part of this run: it goes on there from what --resume found, or failed
// there before its first checkpoint.
bool continues(const RunConfig& config, const std::string& path, const std::string& resumed) {
  std::error_code error;
  if (config.test_steps > 0) {
    return false;  // what is measured does not belong to the run
  }
  if (!config.checkpoint.resumes() || !fs::exists(path + "/config.yaml", error)) {
    return false;
  }
  if (config.checkpoint.resumes_own_run()) {
    return true;
  }
  const fs::path inside = fs::relative(fs::absolute(resumed), fs::absolute(path), error);
  return !error && !inside.empty() && *inside.begin() != "..";
}

std::string free_config_path(const std::string& folder) {
  std::string path = folder + "/config.yaml";
  for (int n = 2; fs::exists(path); ++n) {
    path = str(folder, "/config-", n, ".yaml");
  }
  return path;
}

struct MadeFolder {
  std::string path;
  bool is_continued = false;
};

// Rank 0 only.
MadeFolder make_folder(const RunConfig& config, const std::string& resumed) {
  MadeFolder made{config.run_dir, false};
  if (made.path.empty()) {
    made.path = make_default_folder(default_run_dir(config));
  } else if (continues(config, made.path, resumed)) {
    made.is_continued = true;
  } else {
    make_empty_folder(made.path);
  }
  write_file(free_config_path(made.path), config_text(config));
  std::error_code error;
  fs::create_directory(made.path + "/checkpoints", error);
  if (error) refuse(made.path, error.message());
  open_log_file(made.path + "/out.log", made.is_continued ? OldFile::kAppend : OldFile::kReplace);
  return made;
}

}  // namespace

std::string default_run_dir(const RunConfig& config) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return str(config.runs_root, "/", config.name, "-", text.data());
}

void make_empty_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) refuse(path, error.message());
  const auto first = fs::directory_iterator(path, error);
  if (error) refuse(path, error.message());
  if (first != fs::directory_iterator()) {
    refuse(path, str("it holds '", first->path().filename().string(), "'; allowed: a new or empty folder"));
  }
}

RunFolder RunFolder::create(const RunConfig& config, const comm::MpiGroup& world, const std::string& resumed) {
  MadeFolder made;
  comm::agreed_on_rank_0(world, [&] { made = make_folder(config, resumed); });
  const bool is_continued = world.max(made.is_continued ? 1 : 0) > 0;
  return RunFolder(world.broadcast(made.path, 0), is_continued);
}

MetricsLog RunFolder::open_metrics(const comm::MpiGroup& world) const {
  MetricsLog log;
  const OldFile old_file = is_continued_ ? OldFile::kAppend : OldFile::kReplace;
  comm::agreed_on_rank_0(world, [&] { log = MetricsLog(path_ + "/metrics.jsonl", old_file); });
  return log;
}

}  // namespace vit_hybrid::train
