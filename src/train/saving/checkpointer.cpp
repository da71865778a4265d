// Checkpointer: the copy of the state, the thread that writes it, and the names that move when it is complete.
#include "src/train/saving/checkpointer.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "data/loading/tensor_pool.h"
#include "model/vit_parameters.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/trace.h"
#include "src/base/version.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/config/config_text.h"
#include "src/machine/autotune.h"

namespace vit_hybrid::train {

StateSnapshot::StateSnapshot(Engine& engine, const mesh::DeviceMesh& mesh) : state_(written_boxes(engine, mesh)) {
  int64_t elements = 0;
  for (const StateBox& box : state_) {
    elements += box.values.numel();
  }
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor& like = engine.parameters().values();
  const auto kind = like.is_cuda() ? data::HostMemory::kPinned : data::HostMemory::kPageable;
  const at::Tensor memory = data::host_tensor({elements}, engine.optimizer().master_type(), kind).zero_();
  copies_ = state_;
  int64_t at = 0;
  for (StateBox& copy : copies_) {
    const int64_t count = copy.values.numel();
    copy.values = memory.narrow(0, at, count).view(copy.values.sizes());
    at += count;
  }
}

void StateSnapshot::take() {
  for (size_t i = 0; i < state_.size(); ++i) {
    copies_[i].values.copy_(state_[i].values);
  }
}

namespace {
constexpr std::chrono::milliseconds kBetweenNotes{20};

// A box is counted and written in parts that stay in a processor's cache from the one to the other.
constexpr int64_t kPartElements = 1 << 17;

Checksums checksums_of(Engine& engine, const model::VitOptions& model) {
  Checksums checksums;
  for (const std::string& group : state_groups(engine)) {
    for (const GlobalTensor& tensor : global_tensors(model)) {
      checksums[dataset_path(group, tensor.name)] = {};
    }
  }
  return checksums;
}

std::vector<data::Hdf5DatasetSpec> datasets_of(Engine& engine, const model::VitOptions& model) {
  const at::ScalarType master = engine.optimizer().master_type();
  const std::string not_yet = TensorChecksum().text();
  std::vector<data::Hdf5DatasetSpec> specs;
  for (const std::string& group : state_groups(engine)) {
    for (GlobalTensor& tensor : global_tensors(model)) {
      specs.push_back(
          {dataset_path(group, tensor.name), std::move(tensor.shape), master, {{kChecksumAttribute, not_yet}}});
    }
  }
  return specs;
}

// For the guess before anything was measured: a slow disk.
constexpr double kSlowBytesPerSecond = 100e6;

std::string layout_text(const RunConfig& config, const mesh::DeviceMesh& mesh) {
  const bool cuts_data = mesh.dims().cuts_data();
  return str(mesh.dims().text(), ", zero ", config.parallel.zero,
             cuts_data ? str(" over ", mesh.dims().shard(), " ranks") : "");
}

std::string libraries_text() {
  std::vector<std::string> libraries;
  for (const auto& [name, version] : library_versions()) {
    libraries.push_back(str(name, " ", version));
  }
  libraries.push_back(comm::mpi_library_version());
  return join(libraries);
}

std::string seconds_text(double seconds) {
  return fixed_text(seconds, 3) + " s";
}

}  // namespace

BackgroundSave::BackgroundSave(const comm::MpiGroup& world, Engine& engine, const model::VitOptions& model,
                               const CheckpointInfo& info, const std::string& path, StateSnapshot& snapshot)
    : world_(world), snapshot_(snapshot), file_(world, engine, model, info, path) {
  comm::agreed(world, [&] { snapshot.take(); });
  thread_ = std::thread([this] { write(); });
}

BackgroundSave::~BackgroundSave() {
  stops_ = true;
  if (thread_.joinable()) {
    thread_.join();
  }
}

void BackgroundSave::write() {
  use_allowed_processors();
  const trace::Scope slice({.kind = trace::Kind::kCheckpoint, .name = "checkpoint write"});
  try {
    for (const StateBox& box : snapshot_.boxes()) {
      if (stops_) {
        break;
      }
      file_.write(box);
    }
    file_.flush();
  } catch (...) {
    error_ = std::current_exception();
  }
  is_done_ = true;
}

void BackgroundSave::finish() {
  comm::agreed(world_, [&] {
    for (; !is_done_; std::this_thread::sleep_for(kBetweenNotes))
      comm::note_work_of_helpers();
    thread_.join();
    if (error_) {
      std::rethrow_exception(error_);
    }
  });
  file_.finish();
}

int64_t checkpoint_bytes(Engine& engine, const model::VitOptions& model) {
  const auto item = static_cast<int64_t>(at::elementSize(engine.optimizer().master_type()));
  return static_cast<int64_t>(state_groups(engine).size()) * item * model::num_parameters(model);
}

std::vector<StateBox> written_boxes(Engine& engine, const mesh::DeviceMesh& mesh) {
  const auto groups = state_groups(engine);
  std::vector<StateBox> boxes;
  for (const StatePiece& piece : written_pieces(engine, mesh)) {
    const auto& spec = engine.parameters().specs()[static_cast<size_t>(piece.parameter)];
    for (size_t i = 0; i < groups.size(); ++i) {
      boxes.push_back(
          {dataset_path(groups[i], spec.name), spec.global_shape, piece.box.global_offset, piece.values[i]});
    }
  }
  return boxes;
}

CheckpointWriter::CheckpointWriter(const comm::MpiGroup& world, Engine& engine, const model::VitOptions& model,
                                   const CheckpointInfo& info, const std::string& path)
    : world_(world),
      checksums_(checksums_of(engine, model)),
      file_(world, path, datasets_of(engine, model), info_attributes(info), data::Hdf5Seal::kMetadata) {}

void CheckpointWriter::write(const StateBox& box) {
  const int64_t rows = box.values.dim() == 0 ? 1 : box.values.size(0);
  const int64_t rows_of_part = std::max<int64_t>(kPartElements * rows / std::max<int64_t>(box.values.numel(), 1), 1);
  TensorChecksum checksum;
  for (int64_t row = 0; row < rows; row += rows_of_part) {
    at::Tensor part = box.values;
    std::vector<int64_t> start = box.start;
    if (part.dim() > 0) {
      part = part.narrow(0, row, std::min(rows_of_part, rows - row));
      start[0] += row;
    }
    checksum.add(box.shape, start, part);
    file_.write(box.dataset, start, part);
  }
  const std::lock_guard lock(mutex_);
  checksums_.at(box.dataset).add(checksum.value());
}

void CheckpointWriter::finish() {
  add_up(checksums_, world_);
  std::vector<data::Hdf5Text> texts;
  for (const auto& [dataset, checksum] : checksums_) {
    texts.push_back({dataset, kChecksumAttribute, checksum.text()});
  }
  file_.finish(texts);
}

void save_checkpoint(const comm::MpiGroup& world, const mesh::DeviceMesh& mesh, Engine& engine,
                     const model::VitOptions& model, const CheckpointInfo& info, const std::string& path) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const Progress progress("writing " + path);
  CheckpointWriter file(world, engine, model, info, path);
  comm::agreed(world, [&] {
    std::vector<StateBox> boxes = written_boxes(engine, mesh);
    at::parallel_for(0, static_cast<int64_t>(boxes.size()), 1, [&](int64_t begin, int64_t end) {
      const MemoryTracker::Attachment attachment;
      const MemoryScope scope_of_thread(MemoryClass::kWorkspaces);
      for (int64_t i = begin; i < end; ++i) {
        StateBox box = std::move(boxes[static_cast<size_t>(i)]);
        box.values = box.values.cpu().contiguous();
        file.write(box);
      }
    });
  });
  file.finish();
}

Checkpointer::Checkpointer(const RunConfig& config, const comm::MpiGroup& world, const mesh::DeviceMesh& mesh,
                           Engine& engine, RunLog& log, std::string folder, TrainingData data)
    : config_(config),
      options_(config.checkpoint),
      world_(world),
      mesh_(mesh),
      engine_(engine),
      log_(log),
      folder_(std::move(folder)),
      data_(std::move(data)) {}

Checkpointer::~Checkpointer() {
  free_space({});
}

int64_t Checkpointer::bytes() const {
  return checkpoint_bytes(engine_, config_.model);
}

void Checkpointer::prepare(const std::string& resumed) {
  if (!is_on()) {
    return;
  }
  if (options_.copies_state()) {
    comm::agreed(world_, [&] { snapshot_.emplace(engine_, mesh_); });
  }
  std::string best;
  comm::agreed_on_rank_0(world_, [&] {
    folder_.create();
    folder_.require_own(resumed);
    folder_.require_space(2 * bytes(), str("two checkpoints of ", bytes_text(bytes())));
    const auto stored = stored_best();
    best = stored ? digits(*stored) : "";
  });
  require_shared_folder();
  best = world_.broadcast(best, 0);
  if (!best.empty()) {
    double value = 0.0;
    std::from_chars(best.data(), best.data() + best.size(), value);
    best_ = value;
  }
}

// Found out before step 1 rather than after the last one.
void Checkpointer::require_shared_folder() const {
  const std::string probe = data::temporary_name(folder_.file_of(0));
  comm::agreed_on_rank_0(world_, [&] { data::PosixFile(probe, data::PosixFile::Access::kCreate).close(); });
  const auto remove_probe = [&] {
    std::error_code ignored;  // prune() removes what is left of it
    if (world_.rank() == 0) std::filesystem::remove(probe, ignored);
  };
  try {
    comm::agreed(world_, [&] {
      try {
        data::PosixFile(probe, data::PosixFile::Access::kUpdate).close();
      } catch (const Error& error) {
        throw Error(ErrorClass::kCannotCreate,
                    str("a file that rank 0 made in the checkpoint folder cannot be written here: ", error.message()),
                    "all nodes must share the folder: name another with --checkpoint-dir or --run-dir");
      }
    });
  } catch (const comm::AgreedError&) {  // all ranks have tried
    remove_probe();
    throw;
  }
  remove_probe();
}

// A `best` that cannot be read keeps nobody from training: the next validation makes a new one.
std::optional<double> Checkpointer::stored_best() const {
  const auto path = folder_.target(kBest);
  if (!path || !is_there(*path)) {
    return std::nullopt;  // the last one that was damaged is set aside
  }
  try {
    const CheckpointInfo info = CheckpointReader(*path).info();
    return info.metric == metric_name() && std::isfinite(info.metric_value) ? std::optional(info.metric_value)
                                                                            : std::nullopt;
  } catch (const Error& error) {
    log_warning(str("the best checkpoint so far cannot be read: ", error.message()));
    return std::nullopt;
  }
}

bool Checkpointer::beats_best(const Evaluation& figures) const {
  const double value = metric_of(figures);
  return std::isfinite(value) && (!best_ || (config_.is_forecast() ? value < *best_ : value > *best_));
}

CheckpointInfo Checkpointer::info(const TrainingPosition& position, const std::optional<Evaluation>& figures) const {
  CheckpointInfo out;
  static_cast<TrainingData&>(out) = data_;
  out.version = project_version();
  out.git_commit = git_commit() + (git_dirty() ? "+changes" : "");
  out.libraries = libraries_text();
  out.config = config_text(config_);
  out.model = model_json(config_.model);
  out.optimizer = engine_.optimizer().name();
  out.step = position.step;
  out.optimizer_steps = engine_.optimizer().num_steps();
  const zero::LossScaleState scale = engine_.loss_scaler().state();
  out.loss_scale = scale.scale;
  out.good_steps = scale.good_steps;
  out.skipped_steps = scale.skipped_steps;
  out.epoch = position.epoch;
  out.samples_of_epoch = position.samples_of_epoch;
  out.seed = static_cast<int64_t>(config_.seed);
  out.kernels = saved_kernels();
  out.layout = layout_text(config_, mesh_);
  out.sum_blocks = join(mesh_.sum_blocks(), ",");
  if (figures) {
    out.metric = metric_name();
    out.metric_value = metric_of(*figures);
  }
  return out;
}

void Checkpointer::save(const TrainingPosition& position, const std::optional<Evaluation>& figures) {
  if (!is_on()) {
    return;
  }
  complete();
  const Timer timer;
  const trace::Scope slice({.kind = trace::Kind::kCheckpoint, .name = "checkpoint save", .step = position.step});
  saving_ = {folder_.file_of(position.step), position, Timer(), figures && beats_best(*figures), 0.0};
  if (saving_.is_best) {
    best_ = metric_of(*figures);
  }
  if (options_.async) {
    VH_ASSERT(snapshot_.has_value(), "a save in the background that was not prepared");
    background_ = std::make_unique<BackgroundSave>(world_, engine_, config_.model, info(position, figures),
                                                   saving_.path, *snapshot_);
    saving_.stall = timer.seconds();
    return;
  }
  save_checkpoint(world_, mesh_, engine_, config_.model, info(position, figures), saving_.path);
  saving_.stall = timer.seconds();
  conclude(saving_);
}

void Checkpointer::complete() {
  if (!is_saving()) {
    return;
  }
  const Timer timer;
  const trace::Scope slice({.kind = trace::Kind::kCheckpoint, .name = "checkpoint end", .step = saving_.position.step});
  background_->finish();
  background_.reset();
  saving_.stall += timer.seconds();
  conclude(saving_);
}

void Checkpointer::conclude(const Saving& saving) {
  const Timer timer;
  std::vector<data::PosixFile> removed;
  comm::agreed_on_rank_0(world_, [&] {
    folder_.point(kLatest, saving.path);
    if (saving.is_best) {
      folder_.point(kBest, saving.path);
    }
    removed = folder_.prune(options_.keep);
  });
  free_space(std::move(removed));
  const double seconds = saving.since_start.seconds();
  const double stall = saving.stall + timer.seconds();
  longest_save_ = std::max(longest_save_, seconds);
  log_.event({{"kind", "checkpoint"},
              {"step", saving.position.step},
              {"path", saving.path},
              {"bytes", bytes()},
              {"duration", seconds},
              {"stall", stall},
              {"best", saving.is_best}});
  log_line(str("checkpoint of step ", saving.position.step, saving.is_best ? " (best so far)" : "", ": ", saving.path,
               ", ", bytes_text(bytes()), " in ", seconds_text(seconds),
               options_.async ? str(", of which training waited ", seconds_text(stall)) : ""));
}

// On a thread: it takes longer than the copy of the state.
void Checkpointer::free_space(std::vector<data::PosixFile> removed) {
  if (freeing_.joinable()) {
    freeing_.join();
  }
  if (!removed.empty()) {
    freeing_ = std::thread([files = std::move(removed)]() mutable {
      use_allowed_processors();
      files.clear();
    });
  }
}

double Checkpointer::expected_seconds() const {
  if (!is_on()) {
    return 0.0;
  }
  return longest_save_ > 0.0 ? longest_save_ : 1.0 + static_cast<double>(bytes()) / kSlowBytesPerSecond;
}

}  // namespace vit_hybrid::train
