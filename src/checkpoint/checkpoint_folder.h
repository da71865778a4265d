// CheckpointFolder: the checkpoints of a run by step, and the names `latest` and `best` for two of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/reading/posix_file.h"

namespace vit_hybrid::train {

/// `latest` and `best` are text files that name a checkpoint of the folder. For one rank to use. What changes the
/// folder throws as require_folders() where it is another job's.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  /// "<path>/step-000000128.h5"
  std::string file_of(int64_t step) const;
  /// Makes the folder with its parents. Error(kCannotCreate).
  void create() const;
  /// Makes the name "latest" or "best" that of `file`, a path of file_of(): whoever looks, at any time, finds the old
  /// one or the new one, whole. On the storage when it returns. Error(kCannotCreate), Error(kIo).
  void point(const std::string& name, const std::string& file) const;
  /// Name of one of the checkpoints in it, named or not, whole or set aside; nothing where there is none.
  std::optional<std::string> any_checkpoint() const;
  /// Paths of the checkpoints that are not set aside, by step, the newest first.
  std::vector<std::string> newest_first() const;
  /// Those of them that are of a later step than `step`.
  std::vector<std::string> later_than(int64_t step) const;
  /// The path that a name stands for; nothing where there is no such name, or none that can be read.
  std::optional<std::string> target(const std::string& name) const;
  /// Renames a damaged checkpoint, so that nothing removes or overwrites it, and returns its new path.
  /// Error(kCannotCreate).
  std::string set_aside(const std::string& file) const;
  /// Removes what a run that was killed, or has lost the folder, left half written.
  void remove_unfinished() const;
  /// Removes checkpoints but for the `keep` newest by time of writing and those that have a name, and what a killed run
  /// left half written. A file that cannot be removed is left, with a warning. The files that are gone come back open:
  /// it is their closing, by whatever thread, that gives their space free, and that takes its time.
  std::vector<data::PosixFile> prune(int64_t keep) const;
  /// Error(kCannotCreate) where there are checkpoints that are not those of this run: it would mix its own with them,
  /// and remove them. Those beside `resumed`, the file that the run goes on from (empty: none), are its own.
  void require_own(const std::string& resumed) const;
  /// Error(kCannotCreate) where the file system has less than `bytes` left for this user; `what` says of what.
  void require_space(int64_t bytes, const std::string& what) const;

 private:
  std::string path_;
};

inline constexpr const char* kLatest = "latest";
inline constexpr const char* kBest = "best";

/// Whether there is anything of this name, a link that leads nowhere too. What cannot be looked at, as a name that is
/// too long, is not there.
bool is_there(const std::string& path);

/// Whether a file of this name is what a run that was killed left half written in a folder of checkpoints. Pure.
bool is_unfinished_checkpoint(const std::string& file);

/// The path of the file beside `pointer`, a file `latest` or `best`, that it names. Error(kMissingInput),
/// Error(kBadData) for what names none or is no regular file.
std::string named_by(const std::string& pointer);

}  // namespace vit_hybrid::train
