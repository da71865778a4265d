// CheckpointFolder: names that move in one step, and what may go.
#include "src/train/checkpoint/checkpoint_folder.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "data/posix_file.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/quantity_text.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

namespace fs = std::filesystem;

constexpr const char* kHint = "free space, or name another folder with --checkpoint-dir";

bool is_checkpoint(const std::string& file) {
  return file.starts_with("step-") && file.ends_with(".h5");
}

bool is_unfinished(const std::string& file) {
  return file.ends_with(".h5.partial") && file.starts_with("step-");
}

// The open file, if it can be opened, keeps the removal short.
void remove_file(const fs::path& path, std::vector<data::PosixFile>& removed) {
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
  const std::string path = path_ + "/" + name;
  const std::string temporary = data::temporary_name(path);
  const std::string text = fs::path(file).filename().string() + "\n";
  data::PosixFile out(temporary, data::PosixFile::Access::kCreate);
  out.write(0, text.data(), static_cast<int64_t>(text.size()));
  out.sync();
  out.close();
  data::rename_file(temporary, path);
  data::sync_folder_of(path);
}

std::optional<std::string> CheckpointFolder::any_checkpoint() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    std::string file = entry.path().filename().string();
    if (is_checkpoint(file)) {
      return file;
    }
  }
  return std::nullopt;
}

std::optional<std::string> CheckpointFolder::target(const std::string& name) const {
  std::ifstream in(path_ + "/" + name);
  std::string file;
  if (!std::getline(in, file) || file.empty()) {
    return std::nullopt;
  }
  return path_ + "/" + file;
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
    if (is_unfinished(file)) {
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
    throw Error(ErrorClass::kCannotCreate, str("cannot look at the folder ", path_, ": ", std::strerror(errno)));
  }
  const auto free = static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  if (free < bytes) {
    throw Error(ErrorClass::kCannotCreate,
                str(path_, " has ", bytes_text(free), " left, but ", what, " need ", bytes_text(bytes)), kHint);
  }
}

}  // namespace vit_hybrid::train
