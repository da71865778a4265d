// StagedFiles: copies of files in a node's memory or local disk, made once by the node's ranks together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

/// A file and the byte ranges of it that nobody will read.
struct FileToStage {
  std::string path;
  int64_t bytes = 0;
  std::vector<Range> left_out = {};
};

/// The copies have no name: each rank holds them open, so the system takes the space back when the last of the node's
/// processes ends, however it ends.
class StagedFiles {
 public:
  /// Copies into `folder` of every node. Collective over `group`; errors are agreed: Error(kCannotCreate) if there is
  /// no such folder or not enough free space in it, Error(kIo), Error(kBadData).
  StagedFiles(const comm::MpiGroup& group, const std::vector<FileToStage>& files, const std::string& folder);
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  /// Name under which this process can open copy number `file`, with zeros where nothing was copied.
  std::string path(size_t file) const;
  /// Bytes copied to each node.
  int64_t bytes() const { return bytes_; }

 private:
  void copy_share(const comm::MpiGroup& node, const std::vector<FileToStage>& files, const std::string& folder) const;

  std::vector<int> descriptors_;
  int64_t bytes_ = 0;
};

/// The folder for copies where the user names none: /dev/shm if it is there and may be written to, else TMPDIR, else
/// /tmp.
std::string default_stage_folder();

}  // namespace vit_hybrid::data
