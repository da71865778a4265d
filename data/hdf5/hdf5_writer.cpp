// A file that HDF5 lays out on one rank, its values written by all, and the rename at its end.
#include "data/hdf5/hdf5_writer.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>

#include "data/hdf5/hdf5_attributes.h"
#include "data/hdf5/hdf5_open.h"
#include "data/reading/box_runs.h"
#include "data/reading/file_seal.h"
#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr hsize_t kAlignFrom = 64 * 1024;  // bytes of an object that is worth aligning
constexpr hsize_t kObjectAlignment = 4096;
// What HDF5 keeps of a dataset with some attributes, and of a file: a little more than it takes.
constexpr int64_t kDatasetMetadata = 1024;
constexpr int64_t kFileMetadata = 16 * 1024;

// What a file leaves free at its head, for a seal, and what HDF5 takes at once for structures of its own; 0: as HDF5
// does it.
struct Room {
  int64_t block_bytes = 0;
  int64_t metadata_bytes = 0;
};

// HDF5's structures together, for few ranges to check.
Room room_for_seal(const std::vector<Hdf5DatasetSpec>& datasets, const Hdf5Attributes& attributes) {
  const auto num_datasets = static_cast<int64_t>(datasets.size());
  Room room{seal_block_bytes(num_datasets + 1), kFileMetadata + num_datasets * kDatasetMetadata};
  for (const auto& [name, value] : attributes) {
    if (const auto* const text = std::get_if<std::string>(&value)) {
      room.metadata_bytes += static_cast<int64_t>(text->size());
    } else if (const auto* const numbers = std::get_if<std::vector<double>>(&value)) {
      room.metadata_bytes += static_cast<int64_t>(numbers->size() * sizeof(double));
    }
  }
  return room;
}

Hid create_file(const std::string& path, const Hid& access, const Room& room) {
  const Hid creation(H5Pcreate(H5P_FILE_CREATE), &H5Pclose);
  H5Pset_alignment(access.get(), kAlignFrom, kObjectAlignment);
  if (room.block_bytes > 0) {
    H5Pset_userblock(creation.get(), static_cast<hsize_t>(room.block_bytes));
    H5Pset_meta_block_size(access.get(), static_cast<hsize_t>(room.metadata_bytes));
  }
  return hdf5_create_anew(path, creation, access);
}

// As netCDF-4 has its strings: before 4.9.1 netCDF's library is ended by lists of texts of a fixed length.
Hid text_type() {
  Hid type(H5Tcopy(H5T_C_S1), &H5Tclose);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

// Creates a dataset with its attributes and with storage that is allocated and not filled. Error(kCannotCreate).
Hid create_dataset(hid_t file, const Hdf5DatasetSpec& spec, const std::string& path) {
  const std::vector<hsize_t> extents(spec.shape.begin(), spec.shape.end());
  const Hid space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), &H5Sclose);
  const Hid link(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
  H5Pset_create_intermediate_group(link.get(), 1);
  const Hid creation(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), spec.texts.empty() ? H5D_FILL_TIME_NEVER : H5D_FILL_TIME_ALLOC);
  H5Pset_obj_track_times(creation.get(), false);  // the same data make the same file
  const Hid of_texts = spec.texts.empty() ? Hid() : text_type();
  const hid_t type = spec.texts.empty() ? hdf5_memory_type(spec.type) : of_texts.get();
  Hid dataset =
      hdf5_own(H5Dcreate2(file, spec.name.c_str(), type, space.get(), link.get(), creation.get(), H5P_DEFAULT),
               &H5Dclose, ErrorClass::kCannotCreate, str("create dataset '", spec.name, "' in ", path));
  if (!spec.texts.empty()) {
    std::vector<const char*> all;
    std::transform(spec.texts.begin(), spec.texts.end(), std::back_inserter(all),
                   [](const std::string& text) { return text.c_str(); });
    hdf5_check(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()), ErrorClass::kIo,
               str("write dataset '", spec.name, "' of ", path));
  }
  hdf5_add_attributes(dataset.get(), spec.attributes, path);
  return dataset;
}

// Gives a text attribute that hdf5_add_attributes() made another text of the same length. Error(kIo).
void replace_text(hid_t object, const std::string& name, const std::string& value, const std::string& path) {
  const std::string what = str("write the attribute '", name, "' of ", path);
  const Hid attribute = hdf5_own(H5Aopen(object, name.c_str(), H5P_DEFAULT), &H5Aclose, ErrorClass::kIo, what);
  const Hid type(H5Aget_type(attribute.get()), &H5Tclose);
  VH_ASSERT(H5Tget_size(type.get()) == value.size(), str("text of ", value.size(), " bytes for '", name, "'"));
  hdf5_check(H5Awrite(attribute.get(), type.get(), value.data()), ErrorClass::kIo, what);
}

}  // namespace

struct Hdf5Writer::State {
  struct Dataset {
    Hdf5DatasetSpec spec;
    Hid handle;          // on rank 0
    int64_t offset = 0;  // of the first value
  };

  const comm::MpiGroup& group;
  std::string path;
  std::string temporary;
  Hdf5Seal seal;
  Room room;                           // for the seal
  Hid file;                            // on rank 0, open until the end
  std::optional<PosixFile> values;     // the same file
  std::atomic<bool> is_flushed{true};  // what this rank wrote
  std::map<std::string, Dataset> datasets;
  bool finished = false;

  State(const comm::MpiGroup& file_group, std::string file_path, Hdf5Seal file_seal)
      : group(file_group), path(std::move(file_path)), temporary(temporary_name(path)), seal(file_seal) {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void check_paths() const;
  void create(const std::vector<Hdf5DatasetSpec>& specs, const Hdf5Attributes& attributes);
  void share_offsets(std::vector<Hdf5DatasetSpec> specs);
  bool close_hdf5();
  std::vector<Range> extents() const;
};

Hdf5Writer::State::~State() {
  close_hdf5();
  if (!finished && group.rank() == 0) {
    std::remove(temporary.c_str());
  }
}

bool Hdf5Writer::State::close_hdf5() {
  bool closed = true;
  for (auto& [name, dataset] : datasets) {
    closed = dataset.handle.close() && closed;
  }
  return file.close() && closed;
}

// Rank 0 finds out whether a file can be made, the others whether they see it.
void Hdf5Writer::State::check_paths() const {
  comm::agreed_on_rank_0(group, [&] { PosixFile(temporary, PosixFile::Access::kCreate).close(); });
  comm::agreed(group, [&] { PosixFile(temporary, PosixFile::Access::kUpdate).close(); });
  comm::agreed_on_rank_0(group, [&] { hdf5_make_way(temporary); });
}

void Hdf5Writer::State::create(const std::vector<Hdf5DatasetSpec>& specs, const Hdf5Attributes& attributes) {
  hdf5_initialize();
  if (seal != Hdf5Seal::kNone) {
    room = room_for_seal(specs, attributes);
  }
  file = create_file(temporary, Hid(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose), room);
  hdf5_add_attributes(file.get(), attributes, path);
  for (const Hdf5DatasetSpec& spec : specs) {
    Hid handle = create_dataset(file.get(), spec, path);
    const auto offset = static_cast<int64_t>(H5Dget_offset(handle.get()));
    datasets.emplace(spec.name, Dataset{spec, std::move(handle), offset});
  }
}

void Hdf5Writer::State::share_offsets(std::vector<Hdf5DatasetSpec> specs) {
  std::vector<int64_t> offsets;
  for (const Hdf5DatasetSpec& spec : specs) {
    offsets.push_back(group.rank() == 0 ? datasets.at(spec.name).offset : 0);
  }
  group.broadcast(offsets.data(), static_cast<int64_t>(offsets.size() * sizeof(int64_t)), 0);
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string name = specs[i].name;
    datasets.try_emplace(name, Dataset{std::move(specs[i]), Hid(), offsets[i]});
  }
}

std::vector<Range> Hdf5Writer::State::extents() const {
  std::vector<Range> extents;
  for (const auto& [name, dataset] : datasets) {
    const auto item = static_cast<int64_t>(c10::elementSize(dataset.spec.type));
    const int64_t bytes = num_elements(dataset.spec.shape) * item;
    if (bytes > 0) {
      extents.push_back({dataset.offset, dataset.offset + bytes});
    }
  }
  return extents;
}

Hdf5Writer::Hdf5Writer(const comm::MpiGroup& group, std::string path, std::vector<Hdf5DatasetSpec> datasets,
                       const Hdf5Attributes& attributes, Hdf5Seal seal)
    : state_(std::make_unique<State>(group, std::move(path), seal)) {
  State& state = *state_;
  state.check_paths();
  comm::agreed_on_rank_0(group, [&] { state.create(datasets, attributes); });
  state.share_offsets(std::move(datasets));
  comm::agreed(group, [&] { state.values.emplace(state.temporary, PosixFile::Access::kUpdate); });
}

Hdf5Writer::~Hdf5Writer() = default;

void Hdf5Writer::write(const std::string& dataset, std::span<const int64_t> start, const at::Tensor& values) {
  State& state = *state_;
  const auto found = state.datasets.find(dataset);
  VH_ASSERT(found != state.datasets.end() && !state.finished, str("dataset '", dataset, "' of ", state.path));
  const auto& [spec, handle, offset] = found->second;
  VH_ASSERT(values.is_cpu() && values.is_contiguous() && values.scalar_type() == spec.type &&
                start.size() == spec.shape.size() && values.dim() == static_cast<int64_t>(start.size()),
            str("values for dataset '", dataset, "' of ", state.path));
  for (size_t d = 0; d < start.size(); ++d) {
    VH_ASSERT(start[d] >= 0 && start[d] + values.size(static_cast<int64_t>(d)) <= spec.shape[d],
              str("box in dim ", d, " of dataset '", dataset, "' of ", state.path));
  }
  const auto item = static_cast<int64_t>(values.element_size());
  const std::vector<int64_t> box = values.sizes().vec();
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  for_each_run(box, {spec.shape, {start.begin(), start.end()}}, {box, std::vector<int64_t>(box.size(), 0)},
               [&, first = offset](int64_t to, int64_t from, int64_t count) {
                 state.values->write(first + to * item, bytes + from * item, count * item);
               });
  state.is_flushed = false;
}

void Hdf5Writer::flush() {
  if (!state_->is_flushed) {
    state_->values->sync();
    state_->is_flushed = true;
  }
}

// HDF5 writes what it knows after all values, then the seal makes the file complete.
void Hdf5Writer::finish(const std::vector<Hdf5Text>& texts) {
  State& state = *state_;
  comm::agreed(state.group, [&] {
    flush();
    if (state.group.rank() != 0) {
      state.values->close();
    }
  });
  comm::agreed_on_rank_0(state.group, [&] {
    for (const Hdf5Text& text : texts) {
      replace_text(state.datasets.at(text.dataset).handle.get(), text.attribute, text.value, state.path);
    }
    hdf5_check(state.close_hdf5() ? 0 : -1, ErrorClass::kIo, str("write ", state.temporary));
    if (state.seal != Hdf5Seal::kNone) {
      write_seal(*state.values, state.room.block_bytes, state.extents());
    }
    state.values->sync();
    state.values->close();
    rename_file(state.temporary, state.path);
    sync_folder_of(state.path);
  });
  state.finished = true;
}

}  // namespace vit_hybrid::data
