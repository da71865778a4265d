// RunFolder: making the folder, taking its locks, and what may lie in it.
#include "src/train/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint_folder.h"
#include "src/config/config_text.h"

namespace vit_hybrid::train {

namespace {

namespace fs = std::filesystem;

constexpr const char* kHint = "name another folder with --run-dir, or its parent with --runs-root";
constexpr const char* kConfig = "config.yaml";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kUsage = "usage.jsonl";
constexpr const char* kLog = "out.log";
constexpr const char* kSummary = "summary.json";
constexpr const char* kKernels = "kernels.txt";
constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kEvents = "tensorboard";
constexpr std::chrono::milliseconds kLongestPause{500};  // while another job's lock is waited for

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorClass::kCannotCreate, str("cannot use '", path, "' as run folder: ", why), kHint);
}

void write_new_file(const std::string& path, const std::string& text) {
  data::PosixFile file(path, data::PosixFile::Access::kCreate);
  file.write(0, text.data(), static_cast<int64_t>(text.size()));
  file.close();
}

// Whether `path` is the folder of an earlier part of this run: it goes on there from what --resume or --load
// names, or failed there before its first checkpoint.
bool continues(const RunConfig& config, const std::string& path) {
  std::error_code error;
  if (config.is_trial()) {
    return false;  // what is measured does not belong to the run
  }
  if (!config.checkpoint.resumes() || !fs::exists(path + "/" + kConfig, error)) {
    return false;
  }
  if (config.checkpoint.resumes_own_run()) {
    return true;
  }
  const std::string& from = config.checkpoint.load.empty() ? config.checkpoint.resume : config.checkpoint.load;
  const fs::path inside = fs::relative(fs::absolute(from), fs::absolute(path), error);
  return !error && !inside.empty() && *inside.begin() != "..";
}

// The first of <stem><end>, <stem>-2<end>, ... that no earlier part of the run has taken.
std::string free_path(const std::string& folder, const char* stem, const char* end) {
  std::string path = str(folder, "/", stem, end);
  for (int n = 2; is_there(path); ++n) {
    path = str(folder, "/", stem, "-", n, end);
  }
  return path;
}

bool is_unfinished(const std::string& name) {
  const auto begins = [&](const char* file) { return name.starts_with(str(file, ".")); };
  const bool is_trace = name.starts_with("trace") && name.find(".json.") != std::string::npos;
  return name.ends_with(".partial") &&
         (begins(kMetrics) || begins(kUsage) || begins(kLog) || begins(kSummary) || begins(kKernels) || is_trace);
}

// What a folder holds besides locks, unfinished files and an empty folder for checkpoints.
std::vector<std::string> contents(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  auto entries = fs::directory_iterator(path, error);
  if (error) refuse(path, error.message());
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    const bool is_lock = name.starts_with("run.lock");
    const bool is_empty_folder = name == kCheckpoints && contents(entry.path().string()).empty();
    if (!is_lock && !is_empty_folder && !is_unfinished(name) && !is_unfinished_checkpoint(name)) {
      names.push_back(name);
    }
  }
  return names;
}

// Whether the files are those of a start that failed before the first step: the file of records, which comes first, has
// none of a step; or none at all, of a start that failed or was killed among the files.
bool never_did_a_step(const std::string& path, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name != kConfig && name != kMetrics && name != kUsage && name != kLog && name != kKernels && name != kEvents) {
      return false;
    }
  }
  if (std::find(names.begin(), names.end(), kMetrics) == names.end()) {
    return false;
  }
  ::close(open_regular_file(str(path, "/", kMetrics), O_RDONLY));
  std::ifstream records(str(path, "/", kMetrics));
  std::string record;
  bool is_first = true;
  while (std::getline(records, record)) {
    if (is_first ? !record.starts_with(R"({"kind":"start")") : record.starts_with(R"({"kind":"step")")) {
      return false;
    }
    is_first = false;
  }
  return true;
}

// From now on the file is another one, with the same bytes: what the job that had the folder still writes into the one
// that it has open goes nowhere.
void cut_off(const std::string& path) {
  std::error_code error;
  if (fs::status(path, error).type() == fs::file_type::not_found) {
    return;
  }
  const std::string copy = data::temporary_name(path);
  write_new_file(copy, "");
  const data::PosixFile from(path, data::PosixFile::Access::kRead);
  const data::PosixFile to(copy, data::PosixFile::Access::kUpdate);
  std::string bytes(size_t{1} << 20, '\0');
  const int64_t size = from.size();
  for (int64_t at = 0; at < size; at += static_cast<int64_t>(bytes.size())) {
    const int64_t count = std::min<int64_t>(size - at, static_cast<int64_t>(bytes.size()));
    from.read(at, bytes.data(), count);
    to.write(at, bytes.data(), count);
  }
  data::rename_file(copy, path);
}

void remove_unfinished(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_unfinished(entry.path().filename().string())) {
      require_folders();
      fs::remove(entry.path(), error);
    }
  }
}

// Takes the lock, which is rank 0's. All ranks wait together, in short pauses, so that nobody outlasts a timeout.
void take(FolderLock* lock, const std::optional<LockHolder>& loser, const RunConfig& config,
          const comm::MpiGroup& world) {
  const bool waits = config.checkpoint.resume == "auto";
  const auto doubt = waits ? FolderLock::Doubt::kWait : FolderLock::Doubt::kRefuse;
  const std::chrono::duration<double> quarter(config.checkpoint.lock_renewal / 4);
  bool is_told = false;
  for (;;) {
    bool is_taken = false;
    comm::agreed_on_rank_0(world, [&] {
      is_taken = lock->try_take(doubt, loser);
      if (!lock->remark().empty() && (is_taken || !is_told)) {
        log_line(lock->remark());
        is_told = true;
      }
      if (const int signal = is_taken ? 0 : stop_signal(); signal != 0) {
        throw Error(ErrorClass::kTemporary, str("stopped by ", signal_name(signal), ": ", lock->remark()));
      }
    });
    if (world.max(is_taken ? 1 : 0) > 0) {
      return;
    }
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(quarter, kLongestPause));
  }
}

}  // namespace

void refuse_run_file(const std::string& path, const std::string& option) {
  std::error_code ignored;
  const fs::path file =
      fs::weakly_canonical(fs::absolute(path, ignored).parent_path(), ignored) / fs::path(path).filename();
  const fs::path folder = file.parent_path();
  const std::string name = file.filename().string();
  const bool is_record = name == kMetrics || name == kUsage || name == kLog || name == kSummary || name == kKernels ||
                         name == kRanksFile || (name.starts_with("config") && name.ends_with(".yaml")) ||
                         (name.starts_with("trace") && name.ends_with(".json"));
  const bool is_checkpoint = fs::exists(fs::symlink_status(folder / kLatest, ignored));
  if (is_checkpoint || (is_record && fs::exists(folder / kMetrics, ignored))) {
    throw Error(ErrorClass::kUsage,
                str(option, " is '", path, "', which would be among the ", is_checkpoint ? "checkpoints" : "records",
                    " of a run"),
                "give a name of its own, such as scores.json, or another folder");
  }
}

std::string default_run_dir(const std::string& runs_root, const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return str(runs_root, "/", name, "-", text.data());
}

MadeFolders::~MadeFolders() {
  std::error_code ignored;
  for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) {
    fs::remove(*path, ignored);  // fails where something is in it
  }
}

// Folder by folder, to know which of them are new.
bool MadeFolders::make(const std::string& path, const std::string& hint) {
  fs::path part;
  bool is_new = false;
  for (const fs::path& name : fs::path(path)) {
    if (name.empty()) {
      continue;  // behind a slash at the end
    }
    part /= name;
    std::error_code error;
    is_new = fs::create_directory(part, error);
    if (error) {
      std::error_code ignored;
      const bool is_file = fs::exists(part, ignored) && !fs::is_directory(part, ignored);
      throw Error(ErrorClass::kCannotCreate,
                  str("cannot make the folder ", path, ": ",
                      is_file ? str("'", part.string(), "' is no folder") : error.message()),
                  hint);
    }
    if (is_new) {
      paths_.push_back(part.string());
    }
  }
  return is_new;
}

// Two runs of one second get different folders.
void RunFolder::make(const RunConfig& config) {
  const bool has_name = !config.run_dir.empty();
  const std::string wanted = has_name ? config.run_dir : default_run_dir(config.runs_root, config.name);
  path_ = wanted;
  for (int n = 2; !made_.make(path_, kHint) && !has_name; ++n) {
    path_ = str(wanted, "-", n);
  }
}

void RunFolder::judge_content(const RunConfig& config) {
  const std::vector<std::string> names = contents(path_);
  if (names.empty()) {
    return;
  }
  if (never_did_a_step(path_, names)) {
    log_line(str("the run folder ", path_, " holds what a start left that never did a step: it is used anew"));
    for (const std::string& name : names) {
      require_folders();
      std::error_code error;
      fs::remove_all(path_ + "/" + name, error);
      if (error) refuse(path_, str("cannot remove '", name, "': ", error.message()));
    }
    return;
  }
  is_continued_ = continues(config, path_);
  if (!is_continued_) {
    refuse(path_, str("it holds '", names.front(), "'; allowed: a new or empty folder",
                      config.find_lr > 0 ? "" : ", or --resume latest (or auto) to go on"));
  }
}

void RunFolder::take_run_folder(const RunConfig& config, const comm::MpiGroup& world) {
  comm::agreed_on_rank_0(world, [&] {
    make(config);
    lock_ = std::make_unique<FolderLock>(path_, "run folder", config.checkpoint.lock_renewal);
  });
  path_ = world.broadcast(path_, 0);
  take(lock_.get(), std::nullopt, config, world);
  set_job_mark(world.broadcast(lock_ ? lock_->mark() : "", 0));
  comm::agreed_on_rank_0(world, [&] {
    judge_content(config);
    remove_unfinished(path_);
    if (lock_->loser()) {
      cut_off(path_ + "/" + kLog);
      cut_off(path_ + "/" + kMetrics);
      cut_off(path_ + "/" + kUsage);
    }
  });
  is_continued_ = world.max(is_continued_ ? 1 : 0) > 0;
}

void RunFolder::take_checkpoint_folder(const RunConfig& config, const comm::MpiGroup& world) {
  const std::string folder = config.checkpoint.dir.empty() ? checkpoints_path() : config.checkpoint.dir;
  bool is_another = false;
  comm::agreed_on_rank_0(world, [&] {
    made_.make(folder, "name another folder with --checkpoint-dir");
    std::error_code error;
    is_another = !fs::equivalent(folder, path_, error);
    checkpoints_lock_ = std::make_unique<FolderLock>(folder, "checkpoint folder", config.checkpoint.lock_renewal);
  });
  if (world.max(is_another ? 1 : 0) > 0) {
    take(checkpoints_lock_.get(), lock_ ? lock_->loser() : std::nullopt, config, world);
  }
  comm::agreed_on_rank_0(world, [&] { CheckpointFolder(folder).remove_unfinished(); });
}

RunFolder::RunFolder(const RunConfig& config, const comm::MpiGroup& world) {
  take_run_folder(config, world);
  if (config.checkpoint.keep > 0) {
    take_checkpoint_folder(config, world);
  }
}

RunFolder::~RunFolder() {
  if (!holds_folders()) {
    close_log_file();  // what is still said is for the terminal alone
  }
  set_job_mark("");
}

std::string RunFolder::trace_path() const {
  return free_path(path_, "trace", ".json");
}

RunRecords RunFolder::open(const RunConfig& config, const comm::MpiGroup& world) const {
  const OldFile old_file = is_continued_ ? OldFile::kAppend : OldFile::kRefuse;
  RunRecords records;
  comm::agreed_on_rank_0(world, [&] {
    records.metrics = MetricsLog(str(path_, "/", kMetrics), old_file);  // first: see never_did_a_step()
    if (is_continued_) fs::remove(summary_path());  // it is of the earlier part, and so is all that it says
    records.metrics.show(EventFile(str(path_, "/", kEvents)));
    if (config.usage_interval > 0.0) {
      records.usage = MetricsLog(str(path_, "/", kUsage), old_file);
    }
    open_log_file(str(path_, "/", kLog), old_file);
    write_new_file(free_path(path_, "config", ".yaml"), config_text(config));
  });
  return records;
}

}  // namespace vit_hybrid::train
