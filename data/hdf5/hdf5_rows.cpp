// Rows through HDF5: the row's hyperslab of the dataset, by independent or collective transfers.
#include "data/hdf5/hdf5_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <utility>

#include "data/hdf5/hdf5_crash_guard.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_open.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/operation.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kMinChunkCache = int64_t{1} << 20;  // HDF5's default
constexpr int64_t kMaxChunkCache = int64_t{1} << 27;

struct OpenDataset {
  Hid file;
  Hid dataset;
};

// Bytes of the chunks that one row touches: with less, HDF5 would read and decompress a chunk anew for each row in it.
int64_t chunk_cache_bytes(const ArrayLayout& layout) {
  if (layout.chunk.empty()) {
    return 0;
  }
  auto bytes = static_cast<int64_t>(c10::elementSize(layout.type)) * layout.chunk.front();
  for (size_t d = 1; d < layout.shape.size(); ++d) {
    bytes *= (layout.shape[d] + layout.chunk[d] - 1) / layout.chunk[d] * layout.chunk[d];
  }
  return std::clamp(bytes, kMinChunkCache, kMaxChunkCache);
}

// File access through MPI-IO by the ranks of `group`; an MPI library takes the hints that it knows.
Hid mpi_access(const comm::MpiGroup& group, const MpiIoHints& hints) {
  hdf5_initialize();
  Hid access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
  MPI_Info info = MPI_INFO_NULL;
  if (!hints.empty()) {
    MPI_Info_create(&info);
    for (const auto& [key, value] : hints) {
      MPI_Info_set(info, key.c_str(), value.c_str());
    }
  }
  const herr_t status = H5Pset_fapl_mpio(access.get(), comm::mpi_comm(group), info);  // keeps a copy
  if (info != MPI_INFO_NULL) {
    MPI_Info_free(&info);
  }
  hdf5_check(status, ErrorClass::kInternal, "set up MPI-IO");
  return access;
}

Hid collective_transfer() {
  Hid list(H5Pcreate(H5P_DATASET_XFER), &H5Pclose);
  hdf5_check(H5Pset_dxpl_mpio(list.get(), H5FD_MPIO_COLLECTIVE), ErrorClass::kInternal, "set up an MPI-IO transfer");
  return list;
}

OpenDataset open_dataset(const RowFile& file, hid_t access) {
  const Hdf5CrashGuard guard(file.path);
  OpenDataset opened;
  opened.file = hdf5_open_file(file.path, access);
  opened.dataset = hdf5_open_dataset(opened.file.get(), file.path, file.layout.name, chunk_cache_bytes(file.layout));
  return opened;
}

int64_t item_bytes(const RowFile& file) {
  return static_cast<int64_t>(c10::elementSize(file.layout.type));
}

int64_t bytes_of(const RowFile& file, std::span<const RowBox> boxes) {
  int64_t bytes = 0;
  for (const RowBox& box : boxes) {
    bytes += box.num_values() * item_bytes(file);
  }
  return bytes;
}

// Reads the box of one row, or nothing (row null or the box empty), by a transfer that all ranks may have to take part
// in.
void read_row(const OpenDataset& opened, const RowFile& file, const RowBox& box, const RowRead* row, hid_t transfer) {
  std::vector<hsize_t> start(box.start.begin(), box.start.end());
  std::vector<hsize_t> extents(box.size.begin(), box.size.end());
  start.insert(start.begin(), row == nullptr ? 0 : static_cast<hsize_t>(row->row));
  extents.insert(extents.begin(), 1);
  const Hid memory(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), &H5Sclose);
  const Hid stored(H5Dget_space(opened.dataset.get()), &H5Sclose);
  const bool is_nothing = row == nullptr || box.num_values() == 0;
  if (is_nothing) {
    H5Sselect_none(memory.get());
    H5Sselect_none(stored.get());
  } else {
    H5Sselect_hyperslab(stored.get(), H5S_SELECT_SET, start.data(), nullptr, extents.data(), nullptr);
  }
  char nothing = 0;
  comm::note_work();
  hdf5_check(H5Dread(opened.dataset.get(), hdf5_memory_type(file.layout.type), memory.get(), stored.get(), transfer,
                     is_nothing ? &nothing : static_cast<char*>(row->to) + box.at * item_bytes(file)),
             ErrorClass::kIo,
             str("read ", row == nullptr ? "no row" : str("row ", row->row), " of dataset '", file.layout.name, "' of ",
                 file.path));
}

class IndependentRowReader : public RowReader {
 public:
  explicit IndependentRowReader(std::vector<RowFile> files) : files_(std::move(files)) {}

  void read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& arrived) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      const RowRead& row = rows[i];
      const RowFile& file = files_[static_cast<size_t>(row.file)];
      if (bytes_of(file, boxes) == 0) {
        continue;
      }
      const auto opened =
          open_.get(row.file, [&] { return std::make_shared<OpenDataset>(open_dataset(file, H5P_DEFAULT)); });
      const Hdf5CrashGuard guard(file.path);
      for (const RowBox& box : boxes) {
        read_row(*opened, file, box, &row, H5P_DEFAULT);
        if (arrived) {
          arrived(i, box.at * item_bytes(file), bytes_of(file, {&box, 1}));
        }
      }
    }
  }

 private:
  const std::vector<RowFile> files_;
  LruCache<OpenDataset> open_{kMostOpenFiles};
};

class CollectiveRowReader : public RowReader {
 public:
  CollectiveRowReader(const comm::MpiGroup& group, std::vector<RowFile> files, MpiIoHints hints)
      : group_(group), watched_(group.watched()), files_(std::move(files)), hints_(std::move(hints)) {}

  ~CollectiveRowReader() override {
    const bool may_close = comm::may_release_mpi();
    std::optional<comm::CollectiveScope> scope;
    if (may_close) scope.emplace(*watched_, "data", "closing of HDF5 files");
    open_.for_each([&](OpenDataset& opened) {
      if (may_close) {
        opened.dataset.close();
        opened.file.close();
      } else {
        opened.dataset.abandon();
        opened.file.abandon();
      }
    });
  }

  // One file after the other, in each as many rounds of one row as the rank that wants most of it has rows, and as many
  // boxes as that with most has: some want no channel of this dataset.
  void read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& arrived) override {
    std::map<int64_t, std::vector<const RowRead*>> by_file;
    for (const RowRead& row : rows) {
      by_file[row.file].push_back(&row);
    }
    for (int64_t file = next_wanted(by_file, -1); file >= 0; file = next_wanted(by_file, file)) {
      read_file(file, by_file[file], boxes);
    }
    for (size_t i = 0; i < rows.size() && arrived; ++i) {
      const RowFile& file = files_[static_cast<size_t>(rows[i].file)];
      for (const RowBox& box : boxes) {
        arrived(i, box.at * item_bytes(file), bytes_of(file, {&box, 1}));
      }
    }
  }

 private:
  // The smallest number above `after` of a file that some rank wants rows of; -1 if none.
  int64_t next_wanted(const std::map<int64_t, std::vector<const RowRead*>>& by_file, int64_t after) const {
    const auto none = static_cast<int64_t>(files_.size());
    const auto mine = by_file.upper_bound(after);
    const int64_t wanted = group_.min(mine == by_file.end() ? none : mine->first);
    return wanted == none ? -1 : wanted;
  }

  void read_file(int64_t number, const std::vector<const RowRead*>& rows, std::span<const RowBox> boxes) {
    const RowFile& file = files_[static_cast<size_t>(number)];
    const auto num_rows = static_cast<int64_t>(rows.size());
    const int64_t num_rounds = group_.max(num_rows), num_boxes = group_.max(std::ssize(boxes));
    const RowBox of_nothing = RowBox::whole(file.layout);
    comm::agreed(group_, [&] {
      const comm::CollectiveScope scope(*watched_, "data", "collective HDF5 read", num_rows * bytes_of(file, boxes));
      const auto opened = open_.get(number, [&] {
        const Hid access = mpi_access(group_, hints_);
        return std::make_shared<OpenDataset>(open_dataset(file, access.get()));
      });
      const Hid transfer = collective_transfer();
      std::optional<Error> error;  // kept until the last round: the other ranks wait in the later ones
      for (int64_t round = 0; round < num_rounds; ++round) {
        for (int64_t i = 0; i < num_boxes; ++i) {
          const bool is_wanted = i < std::ssize(boxes);
          const RowBox& box = is_wanted ? boxes[static_cast<size_t>(i)] : of_nothing;
          const RowRead* const row = is_wanted && round < num_rows ? rows[static_cast<size_t>(round)] : nullptr;
          try {
            read_row(*opened, file, box, row, transfer.get());
          } catch (const Error& e) {
            error = error.value_or(e);
          }
        }
      }
      if (error) {
        throw Error(*error);
      }
    });
  }

  const comm::MpiGroup& group_;
  const std::shared_ptr<comm::WatchedGroup> watched_;  // to close the files, when the group may be gone
  const std::vector<RowFile> files_;
  const MpiIoHints hints_;
  LruCache<OpenDataset> open_{kMostOpenFiles};
};

}  // namespace

std::unique_ptr<RowReader> make_independent_row_reader(std::vector<RowFile> files) {
  return std::make_unique<IndependentRowReader>(std::move(files));
}

std::unique_ptr<RowReader> make_collective_row_reader(const comm::MpiGroup& group, std::vector<RowFile> files,
                                                      MpiIoHints hints) {
  return std::make_unique<CollectiveRowReader>(group, std::move(files), std::move(hints));
}

at::Tensor read_whole_dataset(const std::string& path, const std::string& dataset) {
  const ArrayLayout layout = inspect_dataset(path, dataset);
  require_readable(layout, str(path, ": dataset '", dataset, "'"));
  const Hdf5CrashGuard guard(path, Hdf5CrashGuard::kNoLimit);  // it may be large
  const Hid file = hdf5_open_file(path);
  const Hid opened = hdf5_open_dataset(file.get(), path, dataset);
  at::Tensor values = at::empty(layout.shape, layout.type);
  hdf5_check(H5Dread(opened.get(), hdf5_memory_type(layout.type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data_ptr()),
             ErrorClass::kIo, str("read dataset '", dataset, "' of ", path));
  return values;
}

std::optional<int64_t> largest_integer(const std::string& path, const std::string& dataset) {
  constexpr int64_t kMostAtOnce = int64_t{1} << 20;
  const ArrayLayout layout = inspect_dataset(path, dataset);
  if (layout.shape.size() != 1 || !c10::isIntegralType(layout.type, /*includeBool=*/false)) {
    return std::nullopt;
  }
  require_readable(layout, str(path, ": dataset '", dataset, "'"));
  const Hdf5CrashGuard guard(path, Hdf5CrashGuard::kNoLimit);
  const Hid file = hdf5_open_file(path);
  const Hid opened = hdf5_open_dataset(file.get(), path, dataset);
  const Hid stored(H5Dget_space(opened.get()), &H5Sclose);
  std::vector<int64_t> values(static_cast<size_t>(std::min(layout.num_rows(), kMostAtOnce)));
  int64_t largest = -1;
  for (int64_t done = 0; done < layout.num_rows(); done += kMostAtOnce) {
    const auto first = static_cast<hsize_t>(done);
    const auto count = static_cast<hsize_t>(std::min(kMostAtOnce, layout.num_rows() - done));
    const Hid memory(H5Screate_simple(1, &count, nullptr), &H5Sclose);
    H5Sselect_hyperslab(stored.get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr);
    hdf5_check(H5Dread(opened.get(), H5T_NATIVE_INT64, memory.get(), stored.get(), H5P_DEFAULT, values.data()),
               ErrorClass::kIo, str("read dataset '", dataset, "' of ", path));
    largest = std::max(largest, *std::max_element(values.begin(), values.begin() + static_cast<int64_t>(count)));
    comm::note_work();
  }
  return largest;
}

}  // namespace vit_hybrid::data
