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

// Rank 0 only.
std::string make_folder(const RunConfig& config) {
  std::string path = config.run_dir;
  if (path.empty()) {
    path = make_default_folder(default_run_dir(config));
  } else {
    make_empty_folder(path);
  }
  write_file(path + "/config.yaml", config_text(config));
  std::error_code error;
  fs::create_directory(path + "/checkpoints", error);
  if (error) refuse(path, error.message());
  open_log_file(path + "/out.log");
  return path;
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

RunFolder RunFolder::create(const RunConfig& config, const comm::MpiGroup& world) {
  std::string path;
  comm::agreed_on_rank_0(world, [&] { path = make_folder(config); });
  return RunFolder(world.broadcast(path, 0));
}

MetricsLog RunFolder::open_metrics(const comm::MpiGroup& world) const {
  MetricsLog log;
  comm::agreed_on_rank_0(world, [&] { log = MetricsLog(path_ + "/metrics.jsonl"); });
  return log;
}

}  // namespace vit_hybrid::train
