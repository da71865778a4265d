// ScratchFolder: a new empty folder for the files of a test, removed with it.
#pragma once

#include <string>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::testing {

/// Below TMPDIR, else /tmp.
class ScratchFolder {
 public:
  /// For this process alone.
  ScratchFolder();
  /// The same folder for all ranks of `group` (which outlives it), which are on one machine. Made, and removed,
  /// collectively.
  explicit ScratchFolder(const comm::MpiGroup& group);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  const comm::MpiGroup* group_ = nullptr;
  std::string path_;
};

}  // namespace vit_hybrid::testing
