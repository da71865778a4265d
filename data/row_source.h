// RowSource: one dataset, spread over files, opened by all ranks of a group and then read by rows.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/io_mode.h"
#include "data/row_reader.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// The files, inspected by rank 0 for all, and seen to be there by every rank.
class RowSource {
 public:
  /// Collective over `group` (which outlives the source), with the same arguments on all ranks; every error is agreed.
  /// `attribute` names the text attribute to look up (Hdf5Layout::attribute), if not empty. Error(kMissingInput),
  /// Error(kBadData); Error(kUsage) if `io` is direct and some file's bytes cannot be read so.
  RowSource(const comm::MpiGroup& group, const std::vector<std::string>& paths, std::string dataset,
            const std::string& attribute, IoMode io);

  const std::string& dataset() const { return dataset_; }
  const std::vector<RowFile>& files() const { return files_; }
  /// Never kAuto.
  IoMode mode() const { return mode_; }
  /// The mode and, where auto could not take the direct one, why: "independent (1990.h5 has filter deflate)".
  const std::string& mode_text() const { return mode_text_; }
  /// True if read() makes no MPI and no HDF5 call and may run on any thread.
  bool background_reads() const { return mode_ == IoMode::kDirect; }
  /// A row that is asked for several times is read once. In mode kCollective collective over the group.
  void read(std::vector<RowRead> rows) const;

 private:
  void choose_mode(IoMode wanted);

  std::string dataset_;
  std::vector<RowFile> files_;
  IoMode mode_ = IoMode::kDirect;
  std::string mode_text_;
  std::unique_ptr<RowReader> reader_;
};

}  // namespace vit_hybrid::data
