// Opening of a dataset's files by a group, the choice of the way to read, and rows without repetition.
#include "data/row_source.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "data/hdf5_layout_bytes.h"
#include "data/hdf5_rows.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

std::vector<Hdf5Layout> inspect_for_all(const comm::MpiGroup& group, const std::vector<std::string>& paths,
                                        const std::string& dataset, const std::string& attribute) {
  std::string packed;
  comm::agreed_on_rank_0(group, [&] {
    std::vector<Hdf5Layout> layouts;
    for (const std::string& path : paths) {
      layouts.push_back(inspect_dataset(path, dataset, attribute));
    }
    packed = pack_layouts(layouts);
  });
  return unpack_layouts(group.broadcast(std::move(packed), 0));
}

void check_presence(const RowFile& file) {
  const int64_t bytes = PosixFile(file.path, PosixFile::Access::kRead).size();
  if (bytes != file.layout.file_bytes) {
    throw Error(ErrorClass::kBadData,
                str(file.path, " has ", bytes, " bytes here and ", file.layout.file_bytes, " on rank 0"),
                "all ranks must see the same file");
  }
}

}  // namespace

RowSource::RowSource(const comm::MpiGroup& group, const std::vector<std::string>& paths, std::string dataset,
                     const std::string& attribute, IoMode io)
    : dataset_(std::move(dataset)) {
  auto layouts = inspect_for_all(group, paths, dataset_, attribute);
  for (size_t i = 0; i < paths.size(); ++i) {
    files_.push_back({paths[i], std::move(layouts[i])});
  }
  comm::agreed(group, [&] {
    for (const RowFile& file : files_) {
      check_presence(file);
    }
    choose_mode(io);
  });
  if (mode_ == IoMode::kDirect) {
    reader_ = std::make_unique<DirectRowReader>(files_);
  } else if (mode_ == IoMode::kIndependent) {
    reader_ = make_independent_row_reader(files_, dataset_);
  } else {
    reader_ = make_collective_row_reader(group, files_, dataset_);
  }
}

void RowSource::choose_mode(IoMode wanted) {
  mode_ = wanted == IoMode::kAuto ? IoMode::kDirect : wanted;
  mode_text_ = io_mode_name(mode_);
  const auto opaque = std::find_if(files_.begin(), files_.end(), [](const RowFile& file) {
    return file.layout.storage == Hdf5Layout::Storage::kOpaque;
  });
  if (mode_ != IoMode::kDirect || opaque == files_.end()) {
    return;
  }
  const std::string why = str(opaque->path, " has ", opaque->layout.opaque_because);
  if (wanted == IoMode::kDirect) {
    throw Error(ErrorClass::kUsage, str("direct reading is not possible: dataset '", dataset_, "' of ", why),
                "give --io auto, independent or collective");
  }
  mode_ = IoMode::kIndependent;
  mode_text_ = str(io_mode_name(mode_), " (", why, ")");
}

void RowSource::read(std::vector<RowRead> rows) const {
  const auto place = [](const RowRead& read) { return std::tuple(read.file, read.row); };
  std::stable_sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::vector<RowRead> unique;
  std::unique_copy(rows.begin(), rows.end(), std::back_inserter(unique),
                   [&](const auto& a, const auto& b) { return place(a) == place(b); });
  reader_->read(unique);
  auto first = unique.begin();
  for (const RowRead& row : rows) {
    first += place(*first) == place(row) ? 0 : 1;
    if (row.to != first->to) {
      std::memcpy(row.to, first->to, static_cast<size_t>(files_[static_cast<size_t>(row.file)].layout.row_bytes()));
    }
  }
}

}  // namespace vit_hybrid::data
