// RowSource: where the rows of a dataset lie in its files, and whether ranks see the same.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/field_catalogue.h"
#include "data/reading/posix_file.h"
#include "data/reading/row_reader.h"
#include "data/reading/staged_files.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// Throws Error(kBadData) on all ranks, naming a file and two ranks with their hosts, where a file is another one on a
/// rank than on rank 0, though of the same size. What is compared is the head of each file and pieces spread over it,
/// about 300 KiB of each of 32 files, less of each of more, but 8 KiB; ranks of a node that see the same inode leave
/// the reading to one of them. Collective over `group`; what cannot be read is agreed too: Error(kMissingInput),
/// Error(kIo).
void require_same_files(const comm::MpiGroup& group, const std::vector<std::string>& paths);

/// The files, each inspected by one rank for all, and seen to be there by every rank.
class RowSource {
 public:
  /// Collective over `group` (which outlives the source), with the same arguments on all ranks; every error is agreed.
  /// `attribute` names the text attribute to look up (ArrayLayout::attribute), if not empty. Error(kMissingInput),
  /// Error(kBadData); Error(kUsage) if some file's bytes cannot be read as `io` asks.
  RowSource(const comm::MpiGroup& group, const std::vector<std::string>& paths, const std::string& dataset,
            const std::string& attribute, IoMode io, MpiIoHints hints = {});
  /// The same of the weather that `query` names, in the order of time (order_by_time()); errors also those of
  /// inspect_fields(), and Error(kBadData) where files hold the channels in another number of arrays than the first.
  RowSource(const comm::MpiGroup& group, const std::vector<std::string>& paths, const FieldQuery& query, IoMode io,
            MpiIoHints hints = {});

  /// From now on rows are read from copies in `folder` of each node (see StagedFiles): of each file what its first
  /// num_rows[file] rows need, and files of which no row is needed stay where they are. Collective over the group;
  /// errors are agreed. Error(kUsage) in another mode than kDirect (HDF5 opens no file without a name).
  void stage(const std::string& folder, const std::vector<int64_t>& num_rows);

  const std::vector<RowFile>& files() const { return files_; }
  /// Where a row lies that is counted over all files in their order.
  struct Place {
    int64_t file;
    int64_t row;
  };
  Place place(int64_t row) const;
  RowRead read_of(int64_t row, void* to) const { return {place(row).file, place(row).row, to}; }
  /// Never kAuto.
  IoMode mode() const { return mode_; }
  /// The mode and, where auto could not take the direct one, why: "independent (1990.h5 has filter deflate)"; and
  /// what order_by_time() says.
  const std::string& mode_text() const { return mode_text_; }
  /// True if read() makes no MPI and no HDF5 call and may run on any thread.
  bool background_reads() const { return mode_ == IoMode::kDirect; }
  /// Whole rows. A row that is asked for several times is read once. In mode kCollective collective over the group.
  void read(std::vector<RowRead> rows) const;
  /// Read number `read` asks for the same row as number `of`.
  struct Repeat {
    size_t read;
    size_t of;
  };
  /// The box of rows, each once: the repeats, of which nothing is read and told, are returned. `arrived` counts as
  /// `rows` does. In mode kCollective collective over the group.
  std::vector<Repeat> read_once(std::span<const RowRead> rows, const RowBox& box, const Arrived& arrived) const;
  /// Bytes read from files by direct reading so far.
  int64_t bytes_read() const;

 private:
  using Inspect = std::function<ArrayLayout(const std::string& path)>;
  void open(const std::vector<std::string>& paths, const Inspect& inspect);
  void choose_mode(IoMode wanted);
  void make_reader();
  std::unique_ptr<RowReader> make_array_reader(std::vector<RowFile> files, const std::shared_ptr<OpenFiles>& open,
                                               const std::shared_ptr<TensorPool>& buffers);

  const comm::MpiGroup& group_;
  MpiIoHints hints_;
  std::vector<RowFile> files_;
  std::vector<int64_t> ends_;  // number of the row after the last one of each file
  IoMode mode_ = IoMode::kDirect;
  std::string mode_text_;
  std::unique_ptr<StagedFiles> staged_;  // null: the files themselves are read
  std::unique_ptr<RowReader> reader_;
  std::vector<const DirectRowReader*> direct_;  // in mode kDirect: reader_, or those of the arrays in it
};

}  // namespace vit_hybrid::data
