// RowSource: files described by one rank for all, samples of them compared between nodes, and the choice of a reader.
#include "data/reading/row_source.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_rows.h"
#include "data/reading/box_runs.h"
#include "data/reading/joined_rows.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/partition.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

// What is read of each file: its head, and pieces behind it up to the end.
struct Extent {
  int64_t head_bytes;
  int64_t piece_bytes;
  int64_t num_pieces;
};

// The more files, the less of each: about 10 MiB in all, but two pages of each.
Extent extent_of_each(size_t num_files) {
  constexpr int64_t kPage = 4096;
  constexpr size_t kFilesInFull = 32;
  const auto divisor = static_cast<int64_t>((num_files + kFilesInFull - 1) / kFilesInFull);
  const int64_t head = std::max(16 * kPage / divisor, kPage);
  return {head, std::min(4 * kPage, head), std::max<int64_t>(15 / divisor, 1)};
}

// What tells that two ranks of a node see one file, without reading it; and the hash of its sample.
struct Sample {
  std::array<int64_t, 6> identity{};
  uint64_t hash = 0;
};
using Samples = std::vector<Sample>;

std::array<int64_t, 6> identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    PosixFile(path, PosixFile::Access::kRead).close();  // throws the error
  }
  return {static_cast<int64_t>(status.st_dev),
          static_cast<int64_t>(status.st_ino),
          status.st_size,
          status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec,
          status.st_ctim.tv_nsec};
}

uint64_t hash_of(const std::string& path, const Extent& extent) {
  const PosixFile file(path, PosixFile::Access::kRead);
  const int64_t size = file.size();
  std::vector<char> bytes(static_cast<size_t>(std::min(size, extent.head_bytes)));
  file.read(0, bytes.data(), std::ssize(bytes));
  const int64_t last = size - extent.piece_bytes;
  const int64_t num_pieces = size > extent.head_bytes ? extent.num_pieces : 0;
  for (int64_t piece = 1; piece <= num_pieces; ++piece) {
    const size_t at = bytes.size();
    bytes.resize(at + static_cast<size_t>(extent.piece_bytes));
    // In two terms: the product of size and piece may not fit.
    file.read(last / num_pieces * piece + last % num_pieces * piece / num_pieces, bytes.data() + at,
              extent.piece_bytes);
  }
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string packed(const Samples& samples) {
  return {reinterpret_cast<const char*>(samples.data()), samples.size() * sizeof(Sample)};
}

Samples unpacked(const std::string& bytes) {
  Samples samples(bytes.size() / sizeof(Sample));
  std::memcpy(samples.data(), bytes.data(), bytes.size());
  return samples;
}

// Of the files that the node's first rank sees too, its hashes.
Samples samples_of(const comm::MpiGroup& group, const std::vector<std::string>& paths) {
  const Extent extent = extent_of_each(paths.size());
  Samples samples(paths.size());
  const comm::MpiGroup node = group.split_by_node();
  const auto look = [&](const Samples& known) {
    comm::agreed(group, [&] {
      for (size_t i = 0; i < paths.size(); ++i) {
        samples[i].identity = identity_of(paths[i]);
        const bool is_known = !known.empty() && known[i].identity == samples[i].identity;
        samples[i].hash = is_known ? known[i].hash : hash_of(paths[i], extent);
      }
    });
  };
  Samples first;
  if (node.rank() == 0) {
    look({});
  } else {
    comm::agreed(group, [] {});
  }
  first = unpacked(node.broadcast(node.rank() == 0 ? packed(samples) : std::string(), 0));
  look(first);
  return samples;
}

// Rank r looks at the files r, r + size, ...: finding the chunks of a file with many takes seconds.
std::vector<ArrayLayout> inspect_for_all(const comm::MpiGroup& group, const std::vector<std::string>& paths,
                                         const std::function<ArrayLayout(const std::string&)>& inspect) {
  const auto size = static_cast<size_t>(group.size());
  std::vector<ArrayLayout> mine;
  Progress progress(str("opening ", paths.size(), paths.size() == 1 ? " file, " : " files from ", paths.front()),
                    Partition(std::ssize(paths), group.size()).largest());
  comm::agreed(group, [&] {
    for (auto i = static_cast<size_t>(group.rank()); i < paths.size(); i += size) {
      mine.push_back(inspect(paths[i]));
      progress.add();
    }
  });
  std::vector<ArrayLayout> all(paths.size());
  for (size_t rank = 0; rank < std::min(size, paths.size()); ++rank) {
    const int root = static_cast<int>(rank);
    auto layouts = unpack_layouts(group.broadcast(root == group.rank() ? pack_layouts(mine) : std::string(), root));
    for (size_t i = 0; i < layouts.size(); ++i) {
      all[rank + i * size] = std::move(layouts[i]);
    }
  }
  return all;
}

// What ranks compare of it: the file, or of a store the metadata and some chunks of each array, what they share once.
std::vector<std::string> compared_files(const RowFile& file) {
  std::vector<std::string> paths;
  for (const ArrayLayout* array : file.layout.stored_arrays()) {
    for (const std::string& sample : array->chunk_files.samples) {
      const std::string path = file.path + "/" + sample;
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) {
        paths.push_back(path);
      }
    }
  }
  return paths.empty() ? std::vector<std::string>{file.path} : paths;
}

// On every rank; `inspector` is the rank that described the file.
void check_presence(const RowFile& file, size_t inspector) {
  const int64_t bytes = PosixFile(compared_files(file).front(), PosixFile::Access::kRead).size();
  if (bytes != file.layout.file_bytes) {
    throw Error(ErrorClass::kBadData,
                str(file.path, " has ", bytes, " bytes here and ", file.layout.file_bytes, " on rank ", inspector),
                "all ranks must see the same file");
  }
  for (const ArrayLayout* array : file.layout.stored_arrays()) {
    require_readable(*array, str(file.path, ": dataset '", shown(array->name), "'"));
  }
}

// The bytes of the dataset that hold no value of the first `num_rows` rows.
std::vector<Range> bytes_left_out(const ArrayLayout& layout, int64_t num_rows) {
  std::vector<Range> holes;
  if (layout.storage == ArrayLayout::Storage::kJoined) {
    for (const ArrayLayout* array : layout.stored_arrays()) {
      const std::vector<Range> more = bytes_left_out(*array, num_rows);
      holes.insert(holes.end(), more.begin(), more.end());
    }
    return holes;
  }
  if (layout.storage == ArrayLayout::Storage::kContiguous) {
    holes.push_back(
        {layout.offset + num_rows * layout.row_bytes(), layout.offset + layout.num_rows() * layout.row_bytes()});
    return holes;
  }
  if (layout.chunk_offsets.empty()) {
    return holes;
  }
  const int64_t unfiltered_bytes = num_elements(layout.chunk) * static_cast<int64_t>(c10::elementSize(layout.type));
  const int64_t rows_of_chunks = (num_rows + layout.chunk.front() - 1) / layout.chunk.front();
  for (auto i = static_cast<size_t>(rows_of_chunks * layout.chunks_per_row()); i < layout.chunk_offsets.size(); ++i) {
    const int64_t begin = layout.chunk_offsets[i];
    holes.push_back({begin, begin + (layout.chunk_bytes.empty() ? unfiltered_bytes : layout.chunk_bytes[i])});
  }
  return holes;
}

// Of the arrays that channels lie in, as far as both files name the unit.
void require_same_units(const RowFile& file, const RowFile& first) {
  for (int64_t channel = 0; !file.layout.arrays.empty() && channel < file.layout.shape[1]; ++channel) {
    const ArrayLayout& array = file.layout.array_of(channel);
    const ArrayLayout& other = first.layout.array_of(channel);
    if (!array.attribute.empty() && !other.attribute.empty() && !is_same_unit(array.attribute, other.attribute)) {
      throw Error(ErrorClass::kBadData,
                  str(file.path_of(array), ": '", shown(array.name), "' is in ", shown(array.attribute), ", that of ",
                      first.path_of(other), " in ", shown(other.attribute)),
                  "convert the values of one of them: all files have the same units");
    }
  }
}

}  // namespace

void require_same_files(const comm::MpiGroup& group, const std::vector<std::string>& paths) {
  if (group.size() == 1) {
    return;
  }
  const Samples mine = samples_of(group, paths);
  const Samples of_rank_0 = unpacked(group.broadcast(group.rank() == 0 ? packed(mine) : std::string(), 0));
  const std::string host_0 = group.broadcast(host_name(), 0);
  comm::agreed(group, [&] {
    for (size_t i = 0; i < paths.size(); ++i) {
      if (mine[i].hash != of_rank_0[i].hash) {
        throw Error(ErrorClass::kBadData,
                    str(paths[i], " has other contents on rank ", group.rank(), " (", host_name(), ") than on rank 0 (",
                        host_0, "), though the same size"),
                    "all ranks must see the same data: copy the files to the nodes anew, or use a folder that all "
                    "nodes share");
      }
    }
  });
}

RowSource::RowSource(const comm::MpiGroup& group, const std::vector<std::string>& paths, const std::string& dataset,
                     const std::string& attribute, IoMode io, MpiIoHints hints)
    : group_(group), hints_(std::move(hints)) {
  open(paths, [&](const std::string& path) { return inspect_dataset(path, dataset, attribute); });
  comm::agreed(group, [&] { choose_mode(io); });
  make_reader();
}

RowSource::RowSource(const comm::MpiGroup& group, const std::vector<std::string>& paths, const FieldQuery& query,
                     IoMode io, MpiIoHints hints)
    : group_(group), hints_(std::move(hints)) {
  open(paths, [&](const std::string& path) { return inspect_fields(path, query, MissingChannels::kLeaveOut); });
  comm::agreed(group, [&] {
    leave_out_other_dates(files_, query.dates);
    files_ = join_files(std::move(files_), query);
    const ArrayLayout& first = files_.front().layout;
    for (const RowFile& file : files_) {
      if (file.layout.arrays.size() != first.arrays.size()) {
        throw Error(ErrorClass::kBadData,
                    str(file.path, " has the channels in ", file.layout.stored_arrays().size(), " variables (",
                        file.layout.name, "), ", files_.front().path, " in ", first.stored_arrays().size(), " (",
                        first.name, ")"),
                    "all files have the same variables");
      }
      require_same_units(file, files_.front());
    }
    const std::string remark = order_by_time(files_);
    choose_mode(io);
    mode_text_ += remark.empty() ? "" : str(" (", remark, ")");
  });
  make_reader();
}

void RowSource::open(const std::vector<std::string>& paths, const Inspect& inspect) {
  auto layouts = inspect_for_all(group_, paths, inspect);
  for (size_t i = 0; i < paths.size(); ++i) {
    files_.push_back({paths[i], std::move(layouts[i])});
  }
  Progress progress(str("looking for ", paths.size(), paths.size() == 1 ? " file, " : " files from ", paths.front()),
                    std::ssize(paths));
  comm::agreed(group_, [&] {
    for (size_t i = 0; i < files_.size(); ++i) {
      if (!files_[i].layout.is_of_other_dates()) {
        check_presence(files_[i], i % static_cast<size_t>(group_.size()));
      }
      progress.add();
    }
  });
  std::vector<std::string> compared;
  for (const RowFile& file : files_) {
    const auto more = file.layout.is_of_other_dates() ? std::vector<std::string>() : compared_files(file);
    compared.insert(compared.end(), more.begin(), more.end());
  }
  require_same_files(group_, compared);
}

RowSource::Place RowSource::place(int64_t row) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), row);
  VH_ASSERT(row >= 0 && end != ends_.end(), str("row ", row));
  return {end - ends_.begin(), row - (end == ends_.begin() ? 0 : *(end - 1))};
}

int64_t RowSource::bytes_read() const {
  return std::accumulate(direct_.begin(), direct_.end(), int64_t{0},
                         [](int64_t sum, const DirectRowReader* reader) { return sum + reader->bytes_read(); });
}

void RowSource::stage(const std::string& folder, const std::vector<int64_t>& num_rows) {
  if (mode_ != IoMode::kDirect) {
    throw Error(ErrorClass::kUsage, str("--stage-data node is not possible with data that are read ", mode_text_),
                "copies are read directly; `vit_hybrid data repack` makes files that can be");
  }
  for (const RowFile& file : files_) {
    const std::vector<ArrayLayout>& arrays = file.layout.arrays;
    const auto elsewhere =
        std::find_if(arrays.begin(), arrays.end(), [](const ArrayLayout& array) { return !array.file.empty(); });
    if (elsewhere != arrays.end()) {
      throw Error(ErrorClass::kUsage,
                  str("--stage-data node is not possible with variables of one time in several files, as in ",
                      file.path, " and ", elsewhere->file),
                  "copy the files to the nodes yourself, or read them where they are");
    }
    if (file.layout.stored_arrays().front()->storage == ArrayLayout::Storage::kChunkFiles) {
      throw Error(ErrorClass::kUsage,
                  str("--stage-data node is not possible with ", file.path, ", which is a Zarr store"),
                  "copy the store to the nodes yourself, or read it where it is");
    }
  }
  std::vector<FileToStage> to_stage;
  std::vector<size_t> numbers;
  for (size_t i = 0; i < files_.size(); ++i) {
    const RowFile& file = files_[i];
    if (num_rows[i] > 0) {
      const int64_t rows = std::min(num_rows[i], file.layout.num_rows());
      to_stage.push_back({file.path, file.layout.file_bytes, bytes_left_out(file.layout, rows)});
      numbers.push_back(i);
    }
  }
  staged_ = std::make_unique<StagedFiles>(group_, to_stage, folder);
  for (size_t i = 0; i < numbers.size(); ++i) {
    files_[numbers[i]].staged_as = staged_->path(i);
  }
  mode_text_ += str(", copied to ", folder, " of each node (", staged_->bytes(), " bytes)");
  make_reader();
}

void RowSource::make_reader() {
  ends_.clear();
  for (const RowFile& file : files_) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + file.layout.num_rows());
  }
  direct_.clear();
  const auto open = std::make_shared<OpenFiles>(files_);
  const auto buffers = std::make_shared<TensorPool>();
  const auto make = [&](std::vector<RowFile> files) { return make_array_reader(std::move(files), open, buffers); };
  const bool is_joined = files_.front().layout.storage == ArrayLayout::Storage::kJoined;
  reader_ = is_joined ? make_joined_row_reader(files_, make) : make(files_);
}

std::unique_ptr<RowReader> RowSource::make_array_reader(std::vector<RowFile> files,
                                                        const std::shared_ptr<OpenFiles>& open,
                                                        const std::shared_ptr<TensorPool>& buffers) {
  if (mode_ == IoMode::kIndependent) {
    return make_independent_row_reader(std::move(files));
  }
  if (mode_ == IoMode::kCollective) {
    return make_collective_row_reader(group_, std::move(files), hints_);
  }
  auto reader = std::make_unique<DirectRowReader>(std::move(files), open, buffers);
  direct_.push_back(reader.get());
  return reader;
}

void RowSource::choose_mode(IoMode wanted) {
  struct Found {
    const RowFile* file = nullptr;
    const ArrayLayout* array = nullptr;
  };
  const auto find = [&](auto&& is_so) -> std::optional<Found> {
    for (const RowFile& file : files_) {
      for (const ArrayLayout* array : file.layout.stored_arrays()) {
        if (is_so(*array)) return Found{&file, array};
      }
    }
    return std::nullopt;
  };
  const auto cannot = [&](const Found& found, const char* allowed) {
    return Error(ErrorClass::kUsage,
                 str(io_mode_name(wanted), " reading is not possible: dataset '", shown(found.array->name), "' of ",
                     found.file->path_of(*found.array), " has ", found.array->opaque_because),
                 allowed);
  };
  mode_ = wanted == IoMode::kAuto ? IoMode::kDirect : wanted;
  mode_text_ = io_mode_name(mode_);
  const auto made_of_others = find([](const ArrayLayout& array) { return array.is_virtual; });
  if (mode_ == IoMode::kCollective && made_of_others) {
    throw cannot(*made_of_others, "give --io auto or independent");
  }
  if (mode_ == IoMode::kCollective && !are_joined_alike(files_)) {
    throw Error(ErrorClass::kUsage,
                "collective reading is not possible: the channels do not lie alike in all files (levels in another "
                "order, other types or scales)",
                "give --io auto, direct or independent");
  }
  const auto store = find([](const ArrayLayout& array) { return array.storage == ArrayLayout::Storage::kChunkFiles; });
  if (mode_ != IoMode::kDirect) {
    if (store) {
      throw Error(ErrorClass::kUsage,
                  str(io_mode_name(wanted), " reading is not possible: ", store->file->path_of(*store->array),
                      " is a Zarr store"),
                  "give --io auto or direct");
    }
    return;
  }
  const auto opaque = find([](const ArrayLayout& array) { return array.storage == ArrayLayout::Storage::kOpaque; });
  if (!opaque) {
    const bool inflates = find([](const ArrayLayout& array) { return !array.filters.empty(); }).has_value();
    mode_text_ += inflates ? " (chunks are inflated by the reading threads)" : "";
    return;
  }
  if (wanted == IoMode::kDirect || store) {
    throw cannot(*opaque, store ? "files beside Zarr stores must be such that they can be read directly"
                                : "give --io auto, independent or collective");
  }
  mode_ = IoMode::kIndependent;
  mode_text_ = str(io_mode_name(mode_), " (", opaque->file->path_of(*opaque->array), " has ",
                   opaque->array->opaque_because, ")");
}

void RowSource::read(std::vector<RowRead> rows) const {
  for (const Repeat& repeat : read_once(rows, RowBox::whole(files_.front().layout), {})) {
    const RowRead& row = rows[repeat.read];
    std::memcpy(row.to, rows[repeat.of].to,
                static_cast<size_t>(files_[static_cast<size_t>(row.file)].layout.row_bytes()));
  }
}

std::vector<RowSource::Repeat> RowSource::read_once(std::span<const RowRead> rows, const RowBox& box,
                                                    const Arrived& arrived) const {
  const auto place = [&](size_t i) { return std::pair(rows[i].file, rows[i].row); };
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  std::vector<Repeat> repeats;
  std::vector<size_t> numbers;  // of the reads in `unique`
  std::vector<RowRead> unique;
  for (const size_t i : order) {
    if (!numbers.empty() && place(numbers.back()) == place(i)) {
      repeats.push_back({i, numbers.back()});
    } else {
      numbers.push_back(i);
      unique.push_back(rows[i]);
    }
  }
  const auto tell = [&](size_t read, int64_t first, int64_t count) { arrived(numbers[read], first, count); };
  reader_->read(unique, {&box, 1}, arrived ? Arrived(tell) : Arrived());
  return repeats;
}

}  // namespace vit_hybrid::data
