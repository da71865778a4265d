// A file that HDF5 lays out on one rank, its values written by all, and the rename at its end.
#include "data/hdf5/hdf5_writer.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <optional>

#include "data/hdf5/hdf5_attributes.h"
#include "data/hdf5/hdf5_handle.h"
#include "data/hdf5/hdf5_open.h"
#include "data/reading/box_runs.h"
#include "data/reading/file_seal.h"
#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

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
  Hdf5Room room;                       // for the seal
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
    room = hdf5_room_for_seal(specs, attributes);
  }
  file = hdf5_create_file(temporary, Hid(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose), room);
  hdf5_add_attributes(file.get(), attributes, path);
  for (const Hdf5DatasetSpec& spec : specs) {
    Hid handle = hdf5_create_dataset(file.get(), spec, path);
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
      hdf5_replace_text(state.datasets.at(text.dataset).handle.get(), text.attribute, text.value, state.path);
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
