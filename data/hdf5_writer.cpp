// Collective creation of a file, slabs written directly or through HDF5, and the rename at its end.
#include "data/hdf5_writer.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "data/box_runs.h"
#include "data/hdf5_handle.h"
#include "data/hdf5_parallel.h"
#include "data/posix_file.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr hsize_t kAlignFrom = 64 * 1024;  // bytes of an object that is worth aligning
constexpr hsize_t kAlignment = 4096;

std::vector<hsize_t> extents_of(std::span<const int64_t> shape) {
  return {shape.begin(), shape.end()};
}

void add_attribute(hid_t object, const std::string& name, hid_t type, const void* value, const std::string& path) {
  const std::string what = str("write the attribute '", name, "' of ", path);
  const Hid space(H5Screate(H5S_SCALAR), &H5Sclose);
  const Hid attribute = hdf5_own(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                 &H5Aclose, ErrorClass::kCannotCreate, what);
  hdf5_check(H5Awrite(attribute.get(), type, value), ErrorClass::kIo, what);
}

void add_text_attribute(hid_t object, const std::string& name, const std::string& value, const std::string& path) {
  const Hid type(H5Tcopy(H5T_C_S1), &H5Tclose);
  H5Tset_size(type.get(), std::max<size_t>(value.size(), 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  add_attribute(object, name, type.get(), value.empty() ? "\0" : value.data(), path);
}

void add_attributes(hid_t object, const Hdf5Attributes& attributes, const std::string& path) {
  for (const auto& [name, value] : attributes) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      add_text_attribute(object, name, *text, path);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      add_attribute(object, name, H5T_NATIVE_INT64, integer, path);
    } else {
      add_attribute(object, name, H5T_NATIVE_DOUBLE, &std::get<double>(value), path);
    }
  }
}

Hid create_dataset(hid_t file, const Hdf5DatasetSpec& spec, const std::string& path) {
  const auto extents = extents_of(spec.shape);
  const Hid space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), &H5Sclose);
  const Hid link(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
  H5Pset_create_intermediate_group(link.get(), 1);
  const Hid creation(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation.get(), false);  // the same data make the same file
  Hid dataset = hdf5_own(H5Dcreate2(file, spec.name.c_str(), hdf5_memory_type(spec.type), space.get(), link.get(),
                                    creation.get(), H5P_DEFAULT),
                         &H5Dclose, ErrorClass::kCannotCreate, str("create dataset '", spec.name, "' in ", path));
  add_attributes(dataset.get(), spec.attributes, path);
  return dataset;
}

}  // namespace

struct Hdf5Writer::State {
  struct Dataset {
    Hdf5DatasetSpec spec;
    Hid handle;          // where HDF5 transfers
    int64_t offset = 0;  // of the first value, where we do
  };

  const comm::MpiGroup& group;
  std::string path;
  std::string temporary;
  IoMode mode;
  Hid file;                         // open while HDF5 creates or transfers
  std::optional<PosixFile> direct;  // open while we transfer
  std::map<std::string, Dataset> datasets;
  bool finished = false;

  State(const comm::MpiGroup& file_group, std::string file_path, IoMode io_mode)
      : group(file_group), path(std::move(file_path)), temporary(temporary_name(path)), mode(io_mode) {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void check_paths() const;
  void create_file(const Hid& access);
  void create_together(std::vector<Hdf5DatasetSpec> specs, const Hdf5Attributes& attributes);
  void create_on_rank_0(std::vector<Hdf5DatasetSpec> specs, const Hdf5Attributes& attributes);
  void share_offsets(const std::vector<Hdf5DatasetSpec>& specs);
  void create_datasets(std::vector<Hdf5DatasetSpec> specs, const Hdf5Attributes& attributes);
  bool close_hdf5();
  void write_direct(const Dataset& dataset, std::span<const int64_t> start, const at::Tensor& values) const;
  void write_hdf5(const Dataset& dataset, std::span<const int64_t> start, const at::Tensor& values) const;
};

Hdf5Writer::State::~State() {
  if (!hdf5_may_close_collectively()) {
    for (auto& [name, dataset] : datasets) {
      dataset.handle.abandon();
    }
    file.abandon();
  }
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

// Rank 0 alone finds out whether a file can be made, the others whether they see it: MPI-IO's own errors are poor, and
// an opening that fails on one rank only would leave the others waiting.
void Hdf5Writer::State::check_paths() const {
  comm::agreed_on_rank_0(group, [&] { PosixFile(temporary, PosixFile::Access::kCreate).close(); });
  comm::agreed(group, [&] { PosixFile(temporary, PosixFile::Access::kUpdate).close(); });
}

void Hdf5Writer::State::create_file(const Hid& access) {
  H5Pset_alignment(access.get(), kAlignFrom, kAlignment);
  const Hdf5Blocked blocked("creation of an HDF5 file", 0);
  file = hdf5_own(H5Fcreate(temporary.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), &H5Fclose,
                  ErrorClass::kCannotCreate, str("create ", temporary));
}

void Hdf5Writer::State::create_together(std::vector<Hdf5DatasetSpec> specs, const Hdf5Attributes& attributes) {
  comm::agreed(group, [&] { create_file(hdf5_mpi_access(group)); });
  comm::agreed(group, [&] { create_datasets(std::move(specs), attributes); });
}

// Where HDF5 moves no values it is not shared either: a call inside it that fails on one rank leaves nobody waiting.
void Hdf5Writer::State::create_on_rank_0(std::vector<Hdf5DatasetSpec> specs, const Hdf5Attributes& attributes) {
  const std::vector<Hdf5DatasetSpec> described = specs;
  comm::agreed_on_rank_0(group, [&] {
    hdf5_initialize();
    create_file(Hid(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose));
    create_datasets(std::move(specs), attributes);
    hdf5_check(close_hdf5() ? 0 : -1, ErrorClass::kIo, str("write ", temporary));
  });
  share_offsets(described);
  comm::agreed(group, [&] { direct.emplace(temporary, PosixFile::Access::kUpdate); });
}

void Hdf5Writer::State::share_offsets(const std::vector<Hdf5DatasetSpec>& specs) {
  std::vector<int64_t> offsets;
  for (const Hdf5DatasetSpec& spec : specs) {
    offsets.push_back(group.rank() == 0 ? datasets.at(spec.name).offset : 0);
  }
  group.broadcast(offsets.data(), static_cast<int64_t>(offsets.size() * sizeof(int64_t)), 0);
  for (size_t i = 0; i < specs.size(); ++i) {
    datasets.try_emplace(specs[i].name, Dataset{specs[i], Hid(), offsets[i]});
  }
}

void Hdf5Writer::State::create_datasets(std::vector<Hdf5DatasetSpec> specs, const Hdf5Attributes& attributes) {
  const Hdf5Blocked blocked("creation of HDF5 datasets", 0);
  add_attributes(file.get(), attributes, path);
  for (Hdf5DatasetSpec& spec : specs) {
    Hid handle = create_dataset(file.get(), spec, path);
    const haddr_t offset = H5Dget_offset(handle.get());
    const std::string name = spec.name;
    datasets.emplace(name, Dataset{std::move(spec), std::move(handle), static_cast<int64_t>(offset)});
  }
}

void Hdf5Writer::State::write_direct(const Dataset& dataset, std::span<const int64_t> start,
                                     const at::Tensor& values) const {
  const auto item = static_cast<int64_t>(values.element_size());
  const std::vector<int64_t> box = values.sizes().vec();
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  for_each_run(box, {dataset.spec.shape, {start.begin(), start.end()}}, {box, std::vector<int64_t>(box.size(), 0)},
               [&](int64_t to, int64_t from, int64_t count) {
                 direct->write(dataset.offset + to * item, bytes + from * item, count * item);
               });
}

void Hdf5Writer::State::write_hdf5(const Dataset& dataset, std::span<const int64_t> start,
                                   const at::Tensor& values) const {
  const auto box = extents_of(values.sizes());
  const auto first = extents_of(start);
  const Hid memory(H5Screate_simple(static_cast<int>(box.size()), box.data(), nullptr), &H5Sclose);
  const Hid stored(H5Dget_space(dataset.handle.get()), &H5Sclose);
  if (values.numel() == 0) {
    H5Sselect_none(memory.get());
    H5Sselect_none(stored.get());
  } else if (!box.empty()) {
    H5Sselect_hyperslab(stored.get(), H5S_SELECT_SET, first.data(), nullptr, box.data(), nullptr);
  }
  const bool collective = mode == IoMode::kCollective;
  const Hid transfer = hdf5_transfer(collective ? Hdf5Transfer::kCollective : Hdf5Transfer::kIndependent);
  const Hdf5Blocked blocked("writing of an HDF5 dataset", static_cast<int64_t>(values.nbytes()));
  hdf5_check(H5Dwrite(dataset.handle.get(), hdf5_memory_type(dataset.spec.type), memory.get(), stored.get(),
                      transfer.get(), values.const_data_ptr()),
             ErrorClass::kIo, str("write dataset '", dataset.spec.name, "' of ", path));
}

Hdf5Writer::Hdf5Writer(const comm::MpiGroup& group, std::string path, std::vector<Hdf5DatasetSpec> datasets,
                       const Hdf5Attributes& attributes, IoMode mode)
    : state_(std::make_unique<State>(group, std::move(path), mode == IoMode::kAuto ? IoMode::kDirect : mode)) {
  State& state = *state_;
  state.check_paths();
  if (state.mode == IoMode::kDirect) {
    state.create_on_rank_0(std::move(datasets), attributes);
  } else {
    state.create_together(std::move(datasets), attributes);
  }
}

Hdf5Writer::~Hdf5Writer() = default;

void Hdf5Writer::write(const std::string& dataset, std::span<const int64_t> start, const at::Tensor& values) {
  const State& state = *state_;
  const auto found = state.datasets.find(dataset);
  VH_ASSERT(found != state.datasets.end() && !state.finished, str("dataset '", dataset, "' of ", state.path));
  const auto& spec = found->second.spec;
  VH_ASSERT(values.is_cpu() && values.is_contiguous() && values.scalar_type() == spec.type &&
                start.size() == spec.shape.size() && values.dim() == static_cast<int64_t>(start.size()),
            str("values for dataset '", dataset, "' of ", state.path));
  for (size_t d = 0; d < start.size(); ++d) {
    VH_ASSERT(start[d] >= 0 && start[d] + values.size(static_cast<int64_t>(d)) <= spec.shape[d],
              str("box in dim ", d, " of dataset '", dataset, "' of ", state.path));
  }
  if (state.mode == IoMode::kDirect) {
    state.write_direct(found->second, start, values);
  } else {
    state.write_hdf5(found->second, start, values);
  }
}

void Hdf5Writer::flush() {
  if (state_->direct) {
    state_->direct->sync();
  }
}

void Hdf5Writer::finish() {
  State& state = *state_;
  comm::agreed(state.group, [&] {
    if (state.direct) {
      state.direct->sync();
      state.direct->close();
    }
  });
  comm::agreed(state.group, [&] {  // where HDF5 transfers; else it was closed before our bytes
    const Hdf5Blocked blocked("closing of an HDF5 file", 0);
    hdf5_check(state.close_hdf5() ? 0 : -1, ErrorClass::kIo, str("write ", state.temporary));
  });
  comm::agreed_on_rank_0(state.group, [&] {
    if (state.mode != IoMode::kDirect) {
      PosixFile(state.temporary, PosixFile::Access::kUpdate).sync();
    }
    rename_file(state.temporary, state.path);
    sync_folder_of(state.path);
  });
  state.finished = true;
}

}  // namespace vit_hybrid::data
