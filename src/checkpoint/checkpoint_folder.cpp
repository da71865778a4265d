// CheckpointFolder: names that move in one step, and what may go.
#include "src/checkpoint/checkpoint_folder.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/folder_lock.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostPointerBytes = 4096;
constexpr const char* kHint = "free space, or name another folder with --checkpoint-dir";

bool is_checkpoint(const std::string& file) {
  return file.starts_with("step-") && file.ends_with(".h5");
}

constexpr const char* kSetAside = ".damaged";

// Names of the files in a folder; none where there is no such folder.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    files.push_back(entry.path().filename().string());
  }
  return files;
}

int64_t step_of(const std::string& path) {
  const std::string name = fs::path(path).stem().string().substr(std::strlen("step-"));
  int64_t step = -1;
  std::from_chars(name.data(), name.data() + name.size(), step);
  return step;
}

// The open file, if it can be opened, keeps the removal short.
void remove_file(const fs::path& path, std::vector<data::PosixFile>& removed) {
  require_folders();
  try {
    removed.emplace_back(path.string(), data::PosixFile::Access::kRead);
  } catch (const Error&) {  // then its space is freed at once
  }
  std::error_code error;
  fs::remove(path, error);
  if (error) {
    log_warning(str("cannot remove the old checkpoint ", path.string(), ": ", error.message()));
  }
}

}  // namespace

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

bool is_unfinished_checkpoint(const std::string& file) {
  const bool is_ours = file.starts_with("step-") || file.starts_with(kLatest) || file.starts_with(kBest);
  return is_ours && file.ends_with(".partial");
}

std::string named_by(const std::string& pointer) {
  std::string name = read_regular_file(pointer, kMostPointerBytes);
  name.resize(std::min(name.find('\n'), name.size()));
  while (!name.empty() && std::isspace(static_cast<unsigned char>(name.back())) != 0) {
    name.pop_back();
  }
  if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos ||
      name.size() > 255) {
    throw Error(ErrorClass::kBadData, str(pointer, " names no file beside it"), "give the checkpoint's file itself");
  }
  return (fs::path(pointer).parent_path() / name).string();
}

std::string CheckpointFolder::file_of(int64_t step) const {
  char name[40];
  std::snprintf(name, sizeof(name), "step-%09" PRId64 ".h5", step);
  return path_ + "/" + name;
}

void CheckpointFolder::create() const {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) {
    throw Error(ErrorClass::kCannotCreate, str("cannot make the folder ", path_, ": ", error.message()),
                "name another folder with --checkpoint-dir");
  }
}

void CheckpointFolder::point(const std::string& name, const std::string& file) const {
  write_text_file(path_ + "/" + name, fs::path(file).filename().string() + "\n");
}

std::optional<std::string> CheckpointFolder::any_checkpoint() const {
  for (const std::string& file : files_in(path_)) {
    if (file.starts_with("step-") && (file.ends_with(".h5") || file.find(kSetAside) != std::string::npos)) {
      return file;
    }
  }
  return std::nullopt;
}

std::vector<std::string> CheckpointFolder::newest_first() const {
  std::vector<std::string> files;
  for (const std::string& file : files_in(path_)) {
    if (is_checkpoint(file)) {
      files.push_back(path_ + "/" + file);
    }
  }
  std::sort(files.begin(), files.end(),
            [](const std::string& a, const std::string& b) { return step_of(a) > step_of(b); });
  return files;
}

std::vector<std::string> CheckpointFolder::later_than(int64_t step) const {
  std::vector<std::string> files = newest_first();
  std::erase_if(files, [&](const std::string& file) { return step_of(file) <= step; });
  return files;
}

std::string CheckpointFolder::set_aside(const std::string& file) const {
  std::string path = file + kSetAside;
  for (int n = 2; is_there(path); ++n) {
    path = str(file, kSetAside, "-", n);
  }
  data::rename_file(file, path);
  data::sync_folder_of(path);
  return path;
}

std::optional<std::string> CheckpointFolder::target(const std::string& name) const {
  try {
    return named_by(path_ + "/" + name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void CheckpointFolder::remove_unfinished() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    if (is_unfinished_checkpoint(entry.path().filename().string())) {
      std::vector<data::PosixFile> removed;
      remove_file(entry.path(), removed);
    }
  }
}

std::vector<data::PosixFile> CheckpointFolder::prune(int64_t keep) const {
  std::vector<data::PosixFile> removed;
  std::set<std::string> named;
  for (const char* name : {kLatest, kBest}) {
    if (const auto path = target(name)) {
      named.insert(fs::path(*path).filename().string());
    }
  }
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const std::string file = entry.path().filename().string();
    if (is_unfinished_checkpoint(file)) {
      remove_file(entry.path(), removed);
    } else if (is_checkpoint(file)) {
      files.emplace_back(entry.last_write_time(error), entry.path());
    }
  }
  std::sort(files.rbegin(), files.rend());
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 0)); i < files.size(); ++i) {
    if (!named.contains(files[i].second.filename().string())) {
      remove_file(files[i].second, removed);
    }
  }
  return removed;
}

void CheckpointFolder::require_own(const std::string& resumed) const {
  std::error_code error;
  if (!resumed.empty() && fs::equivalent(fs::absolute(resumed).parent_path(), path_, error)) {
    return;
  }
  if (const auto file = any_checkpoint()) {
    throw Error(ErrorClass::kCannotCreate, str("the folder ", path_, " holds checkpoints of another run (", *file, ")"),
                "go on from them with --resume, or name another folder with --checkpoint-dir");
  }
}

void CheckpointFolder::require_space(int64_t bytes, const std::string& what) const {
  struct statvfs status {};
  if (::statvfs(path_.c_str(), &status) != 0) {
    throw Error(ErrorClass::kCannotCreate, str("cannot look at the folder ", path_, ": ", reason(errno)));
  }
  const auto free = static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  if (free < bytes) {
    throw Error(ErrorClass::kCannotCreate,
                str(path_, " has ", bytes_text(free), " left, but ", what, " need ", bytes_text(bytes)), kHint);
  }
}

}  // namespace vit_hybrid::train
