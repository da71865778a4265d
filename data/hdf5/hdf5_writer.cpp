// Collective creation of a file, slabs written directly or through HDF5, and the rename at its end.
#include "data/hdf5/hdf5_writer.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <optional>

#include "data/hdf5/hdf5_attributes.h"
#include "data/hdf5/hdf5_create.h"
#include "data/hdf5/hdf5_handle.h"
#include "data/hdf5/hdf5_parallel.h"
#include "data/reading/box_runs.h"
#include "data/reading/file_seal.h"
#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

std::vector<hsize_t> extents_of(std::span<const int64_t> shape) {
  return {shape.begin(), shape.end()};
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
  Hdf5Seal seal;
  Hdf5Room room;                       // for the seal
  Hid file;                            // open until the end, on rank 0 alone where we transfer
  std::optional<PosixFile> direct;     // open while we transfer
  std::atomic<bool> is_flushed{true};  // what this rank wrote, where we transfer
  std::map<std::string, Dataset> datasets;
  bool finished = false;

  State(const comm::MpiGroup& file_group, std::string file_path, IoMode io_mode, Hdf5Seal file_seal)
      : group(file_group), path(std::move(file_path)), temporary(temporary_name(path)), mode(io_mode), seal(file_seal) {
    VH_ASSERT(seal == Hdf5Seal::kNone || mode == IoMode::kDirect, "only a file that one rank creates is sealed");
  }
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
  void flush();
  void finish_direct(const std::vector<Hdf5Text>& texts);
  void finish_hdf5(const std::vector<Hdf5Text>& texts);
  void replace_texts(const std::vector<Hdf5Text>& texts);
  std::vector<Range> extents() const;
  void write_direct(const Dataset& dataset, std::span<const int64_t> start, const at::Tensor& values);
  void write_hdf5(const Dataset& dataset, std::span<const int64_t> start, const at::Tensor& values) const;
};

Hdf5Writer::State::~State() {
  if (mode != IoMode::kDirect && !hdf5_may_close_collectively()) {
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
  comm::agreed_on_rank_0(group, [&] { hdf5_make_way(temporary); });
}

void Hdf5Writer::State::create_file(const Hid& access) {
  file = hdf5_create_file(temporary, access, room);
}

void Hdf5Writer::State::create_together(std::vector<Hdf5DatasetSpec> specs, const Hdf5Attributes& attributes) {
  comm::agreed(group, [&] {
    const comm::CollectiveScope scope(*group.watched(), "data", "creation of an HDF5 file");
    create_file(hdf5_mpi_access(group));
  });
  comm::agreed(group, [&] {
    const comm::CollectiveScope scope(*group.watched(), "data", "creation of HDF5 datasets");
    create_datasets(std::move(specs), attributes);
  });
}

// Where HDF5 moves no values it is not shared either: a call inside it that fails on one rank leaves nobody waiting.
void Hdf5Writer::State::create_on_rank_0(std::vector<Hdf5DatasetSpec> specs, const Hdf5Attributes& attributes) {
  const std::vector<Hdf5DatasetSpec> described = specs;
  comm::agreed_on_rank_0(group, [&] {
    hdf5_initialize();
    if (seal != Hdf5Seal::kNone) {
      room = hdf5_room_for_seal(specs, attributes);
    }
    create_file(Hid(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose));
    create_datasets(std::move(specs), attributes);
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
  hdf5_add_attributes(file.get(), attributes, path);
  for (Hdf5DatasetSpec& spec : specs) {
    Hid handle = hdf5_create_dataset(file.get(), spec, path);
    const haddr_t offset = H5Dget_offset(handle.get());
    const std::string name = spec.name;
    datasets.emplace(name, Dataset{std::move(spec), std::move(handle), static_cast<int64_t>(offset)});
  }
}

void Hdf5Writer::State::write_direct(const Dataset& dataset, std::span<const int64_t> start, const at::Tensor& values) {
  const auto item = static_cast<int64_t>(values.element_size());
  const std::vector<int64_t> box = values.sizes().vec();
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  for_each_run(box, {dataset.spec.shape, {start.begin(), start.end()}}, {box, std::vector<int64_t>(box.size(), 0)},
               [&](int64_t to, int64_t from, int64_t count) {
                 direct->write(dataset.offset + to * item, bytes + from * item, count * item);
               });
  is_flushed = false;
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
  std::optional<comm::CollectiveScope> scope;  // alone, nobody waits
  if (collective) {
    scope.emplace(*group.watched(), "data", "writing of an HDF5 dataset", static_cast<int64_t>(values.nbytes()));
  }
  hdf5_check(H5Dwrite(dataset.handle.get(), hdf5_memory_type(dataset.spec.type), memory.get(), stored.get(),
                      transfer.get(), values.const_data_ptr()),
             ErrorClass::kIo, str("write dataset '", dataset.spec.name, "' of ", path));
}

void Hdf5Writer::State::flush() {
  if (!is_flushed) {
    direct->sync();
    is_flushed = true;
  }
}

void Hdf5Writer::State::replace_texts(const std::vector<Hdf5Text>& texts) {
  for (const Hdf5Text& text : texts) {
    hdf5_replace_text(datasets.at(text.dataset).handle.get(), text.attribute, text.value, path);
  }
}

// HDF5 writes what it knows after all values, then the seal makes the file complete.
void Hdf5Writer::State::finish_direct(const std::vector<Hdf5Text>& texts) {
  comm::agreed(group, [&] {
    flush();
    if (group.rank() != 0) {
      direct->close();
    }
  });
  comm::agreed_on_rank_0(group, [&] {
    replace_texts(texts);
    hdf5_check(close_hdf5() ? 0 : -1, ErrorClass::kIo, str("write ", temporary));
    if (seal != Hdf5Seal::kNone) {
      write_seal(*direct, room.block_bytes, extents());
    }
    direct->sync();
    direct->close();
    rename_file(temporary, path);
    sync_folder_of(path);
  });
}

void Hdf5Writer::State::finish_hdf5(const std::vector<Hdf5Text>& texts) {
  comm::agreed(group, [&] {
    const comm::CollectiveScope scope(*group.watched(), "data", "writing of HDF5 attributes, and closing");
    replace_texts(texts);
    hdf5_check(close_hdf5() ? 0 : -1, ErrorClass::kIo, str("write ", temporary));
  });
  comm::agreed_on_rank_0(group, [&] {
    PosixFile(temporary, PosixFile::Access::kUpdate).sync();
    rename_file(temporary, path);
    sync_folder_of(path);
  });
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
                       const Hdf5Attributes& attributes, IoMode mode, Hdf5Seal seal)
    : state_(std::make_unique<State>(group, std::move(path), mode == IoMode::kAuto ? IoMode::kDirect : mode, seal)) {
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
  State& state = *state_;
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
    state_->flush();
  }
}

void Hdf5Writer::finish(const std::vector<Hdf5Text>& texts) {
  State& state = *state_;
  if (state.mode == IoMode::kDirect) {
    state.finish_direct(texts);
  } else {
    state.finish_hdf5(texts);
  }
  state.finished = true;
}

}  // namespace vit_hybrid::data
