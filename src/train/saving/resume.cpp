// Resuming: rank 0 finds and judges; each rank reads what it owns.
#include "src/train/saving/resume.h"
#include "src/train/saving/engine_state.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "parallel/comm/agreement.h"
#include "parallel/zero/rules/update_rule.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/checkpoint/format.h"
#include "src/checkpoint/slice_reader.h"
#include "src/train/engine.h"

namespace vit_hybrid::train {

namespace {

std::string no_latest_text(const CheckpointFolder& folder) {
  return str(folder.path(), " holds checkpoints, but no 'latest' that can be read");
}

// Megatron's way of going on: what is not there is a warning.
std::optional<std::string> find_loaded(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    return resolve_checkpoint(path);
  }
  for (const std::string& name : {path, (std::filesystem::path(path) / "checkpoints").string()}) {
    const CheckpointFolder folder(name);
    if (auto latest = folder.target(kLatest)) {
      return latest;
    }
    if (const auto files = folder.newest_first(); !files.empty()) {  // killed before it had its name
      log_warning(str("--load: ", no_latest_text(folder), ": taking the newest"));
      return files.front();
    }
    if (folder.any_checkpoint()) {
      return resolve_checkpoint(path);
    }
  }
  log_warning(str("--load: there is no checkpoint in ", path, ", so this is a new training"));
  return std::nullopt;
}

// Opens the file on this process alone: an error where it is not, or not any more, a whole checkpoint. I/O errors,
// after which the file may be read again, and those of another version's file are thrown.
std::optional<Error> damage_of(const std::string& path) {
  try {
    const CheckpointReader reader(path);
    return std::nullopt;
  } catch (const OtherFormatError&) {
    throw;
  } catch (const Error& error) {
    if (error.error_class() == ErrorClass::kBadData || error.error_class() == ErrorClass::kMissingInput) {
      return error;
    }
    throw;
  }
}

// For a hint: what is wrong with a file that is not, nobody has asked.
bool is_whole(const std::string& path) {
  try {
    return !damage_of(path);
  } catch (const Error&) {
    return false;
  }
}

// A file that cannot be judged, as that of another version, is not.
bool is_damaged(const std::string& path) {
  try {
    return damage_of(path).has_value();
  } catch (const Error&) {
    return false;
  }
}

bool is_in(const CheckpointFolder& folder, const std::string& file) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(file).parent_path();
  return !folder.path().empty() && std::filesystem::equivalent(parent.empty() ? "." : parent, folder.path(), error);
}

// Why an optimizer cannot go on from the state of the checkpoint's; empty if it can. Adam and AdamW keep the same
// numbers; those of others mean something else, though they may have the same names.
std::string optimizer_difference(const CheckpointReader& checkpoint, const zero::OptimizerOptions& options) {
  const auto family = [](const std::string& name) { return name == "adamw" ? "adam" : name; };
  const std::string& stored = checkpoint.info().optimizer;
  const std::string name = zero::optimizer_name(options.kind);
  if (family(stored) != family(name)) {
    return str("--optimizer is ", name, ", the checkpoint's is ", stored);
  }
  std::vector<std::string> kept = zero::optimizer_state_names(options);
  std::sort(kept.begin(), kept.end());
  const std::vector<std::string> states = checkpoint.optimizer_states();
  if (kept == states) {
    return {};
  }
  return str("--optimizer ", name, " with --momentum ", options.momentum, " keeps ",
             kept.empty() ? "no state" : join(kept), ", the checkpoint holds ", states.empty() ? "none" : join(states));
}

void check_on_rank_0(const CheckpointReader& checkpoint, const StepConfig& config, const TrainingData& data) {
  const CheckpointInfo& info = checkpoint.info();
  if (!checkpoint.has_optimizer()) {
    throw Error(ErrorClass::kUsage, str(checkpoint.path(), " holds weights alone, no optimizer state to resume from"),
                str("start a new training from them with --init-from ", checkpoint.path()));
  }
  std::vector<std::string> lines = model_differences(info.model, config.model);
  lines.push_back(optimizer_difference(checkpoint, config.optimizer));
  if (static_cast<uint64_t>(info.seed) != config.seed) {
    lines.push_back(str("--seed is ", config.seed, ", the checkpoint's is ", static_cast<uint64_t>(info.seed)));
  }
  if (info.num_samples != data.num_samples) {
    lines.push_back(str("the training data have ", data.num_samples, " samples in use, the checkpoint's had ",
                        info.num_samples, " (--train-data, --limit-nsamples, --generated-samples)"));
  }
  lines.insert(lines.end(),
               {channels_difference(info, data.channels), units_difference(info, data.units),
                lead_difference(info, data.lead), roles_difference(info, data), grid_difference(info, data.grid),
                statistics_difference(info, data), classes_difference(info, data.class_names)});
  std::erase(lines, "");
  if (!lines.empty()) {
    throw Error(ErrorClass::kUsage, str("this run cannot go on from ", checkpoint.path(), ": ", join(lines, "; ")),
                str("give what the checkpoint has, or start a new training from its weights with --init-from ",
                    checkpoint.path()));
  }
}

void require_tensor(const CheckpointReader& checkpoint, const std::string& path, const std::vector<int64_t>& shape) {
  const CheckpointTensor* const tensor = checkpoint.find(path);
  if (tensor == nullptr || tensor->shape != shape) {
    throw Error(ErrorClass::kBadData,
                str(checkpoint.path(), ": dataset '", path, "' ",
                    tensor == nullptr ? "is missing" : str("has shape [", join(tensor->shape), "]"),
                    ", the model needs shape [", join(shape), "]"),
                "the checkpoint is damaged or of another model: resume from another one");
  }
}

// Reads the optimizer state that this rank owns, and counts each element that no other rank counts.
void read_state(const CheckpointReader& checkpoint, Engine& engine, bool counts_replicated, Checksums& checksums) {
  const auto groups = state_groups(engine);
  const auto pieces = owned_pieces(engine);
  Progress progress("reading the optimizer's state of " + checkpoint.path(), std::ssize(pieces));
  for (const StatePiece& piece : pieces) {
    const auto& spec = engine.parameters().specs()[static_cast<size_t>(piece.parameter)];
    for (size_t i = 1; i < groups.size(); ++i) {
      const std::string path = dataset_path(groups[i], spec.name);
      require_tensor(checkpoint, path, spec.global_shape);
      const at::Tensor values = checkpoint.read(path, piece.box.global_offset, piece.box.size);
      if (counts_replicated || !spec.replicated_over_tensor) {
        checksums[path].add(spec.global_shape, piece.box.global_offset, values);
      }
      piece.values[i].copy_(values);
    }
    progress.add();
  }
}

// `num_copies`: how often each element was counted.
void verify(const CheckpointReader& checkpoint, const Checksums& checksums, uint64_t num_copies) {
  for (const auto& [path, counted] : checksums) {
    const std::string& text = checkpoint.find(path)->checksum;
    const uint64_t stored = std::strtoull(text.c_str(), nullptr, 16);
    if (counted.value() != stored * num_copies) {
      throw Error(ErrorClass::kBadData,
                  str(checkpoint.path(), ": the values of '", path, "' do not have the checksum ", text,
                      " that was stored with them"),
                  "the file is damaged: resume from another checkpoint with --resume FILE");
    }
  }
}

// --checkpoint-dir, else <run_dir>/checkpoints; empty where neither is given.
std::string configured_folder(const CheckpointConfig& options, const std::string& run_dir) {
  if (!options.dir.empty()) {
    return options.dir;
  }
  return run_dir.empty() ? std::string() : run_dir + "/checkpoints";
}

}  // namespace

Resumption::Resumption(const CheckpointConfig& options, const std::string& run_dir, const comm::MpiGroup& world)
    : options_(options), folder_(configured_folder(options, run_dir)), world_(world) {
  if (!options.resumes()) {
    return;
  }
  comm::agreed_on_rank_0(world_, [&] { find_candidates(); });
  open_next();
}

void Resumption::find_candidates() {
  if (!options_.load.empty()) {
    if (const auto loaded = find_loaded(options_.load)) {
      candidates_ = {*loaded};
    }
    return;
  }
  const std::string& wanted = options_.resume;
  if (!options_.resumes_own_run()) {
    candidates_ = {resolve_checkpoint(wanted)};
    return;
  }
  const CheckpointFolder folder(folder_);
  candidates_ = folder.newest_first();
  if (const auto latest = folder.target(kLatest)) {
    std::erase(candidates_, *latest);
    candidates_.insert(candidates_.begin(), *latest);
    return;
  }
  lacks_latest_ = true;
  if (!candidates_.empty()) {
    const std::string what = no_latest_text(folder);
    if (wanted == "latest") {
      first_error_ = Error(ErrorClass::kMissingInput, str("--resume latest: ", what));
      refuse(*first_error_);
    }
    log_warning(str("--resume auto: ", what, ": looking for the newest"));
    return;
  }
  if (const auto file = folder.any_checkpoint()) {
    throw Error(
        ErrorClass::kBadData,
        str("--resume ", wanted, ": all checkpoints of ", folder.path(), " were found to be damaged (", *file, ")"),
        "go on from another run's with --resume PATH, or begin anew with another --run-dir");
  }
  if (wanted == "latest") {
    throw Error(ErrorClass::kMissingInput, str("--resume latest: there is no checkpoint in ", folder.path()),
                "check --run-dir; --resume auto starts a new training where there is no checkpoint yet");
  }
  log_line(str("--resume auto: there is no checkpoint in ", folder.path(), " yet, so this is a new training"));
}

// On rank 0. Another one than the first is taken by `auto` alone.
std::string Resumption::next_whole() {
  while (!candidates_.empty()) {
    const std::string path = candidates_.front();
    candidates_.erase(candidates_.begin());
    const auto error = damage_of(path);
    if (!error) {
      if (first_error_) {
        log_warning(str(first_error_->message(), "; going on from ", path));
      }
      return path;
    }
    if (!first_error_) {
      first_error_ = *error;
    }
    if (options_.resume != "auto") {
      refuse(*first_error_);
    }
    damaged_.push_back(path);
  }
  if (first_error_) {
    refuse(*first_error_);
  }
  return {};
}

// Of the run's own checkpoints, the newest that is whole is named.
void Resumption::refuse(const Error& error) const {
  if (!options_.resumes_own_run()) {
    throw error;
  }
  for (const std::string& path : candidates_) {
    if (is_whole(path)) {
      throw Error(error.error_class(), error.message(),
                  str(path, " is whole: name it with --resume, or let --resume auto take it"));
    }
  }
  throw Error(
      error.error_class(), error.message(),
      "there is no other one that is whole: start anew in another --run-dir, or name a copy with --resume PATH");
}

void Resumption::open_next() {
  checkpoint_.reset();
  std::string path;
  comm::agreed_on_rank_0(world_, [&] { path = next_whole(); });
  path = world_.broadcast(path, 0);
  if (!path.empty()) {
    checkpoint_.emplace(world_, path);
  }
}

void Resumption::fall_back(const Error& error) {
  comm::agreed_on_rank_0(world_, [&] {
    if (options_.resume != "auto") {
      refuse(error);
    }
    damaged_.push_back(path());
    first_error_ = error;
  });
  open_next();
}

// What of the folder is damaged and would be written over: what was passed over, and what is of later steps than the
// checkpoint that was taken, which whoever names one himself need not have tried.
std::vector<std::string> Resumption::damaged_in(const CheckpointFolder& folder) const {
  std::vector<std::string> files = damaged_;
  for (const std::string& file : folder.later_than(checkpoint_->info().step)) {
    if (std::find(files.begin(), files.end(), file) == files.end() && is_damaged(file)) {
      files.push_back(file);
    }
  }
  return files;
}

void Resumption::settle() const {
  comm::agreed_on_rank_0(world_, [&] {
    const CheckpointFolder folder(folder_);
    if (!checkpoint_ || options_.keep == 0 || !is_in(folder, path())) {
      return;
    }
    // First of all, or who is killed here goes on with a good `latest` and writes over what is damaged.
    for (const std::string& file : damaged_in(folder)) {
      if (is_there(file)) {
        log_warning(str("the damaged checkpoint ", file, " is set aside as ", folder.set_aside(file)));
      }
    }
    if (options_.resume == "auto" && (!damaged_.empty() || lacks_latest_)) {
      folder.point(kLatest, path());
    }
  });
}

void check_resumable(const CheckpointReader& checkpoint, const StepConfig& config, const TrainingData& data,
                     const comm::MpiGroup& world) {
  comm::agreed_on_rank_0(world, [&] { check_on_rank_0(checkpoint, config, data); });
}

void restore(const CheckpointReader& checkpoint, Engine& engine, mesh::DeviceMesh& mesh, const comm::MpiGroup& world) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  comm::agreed(world,
               [&] { load_parameters(checkpoint, engine.parameters().specs(), engine.optimizer(), mesh.model()); });
  Checksums checksums;
  comm::agreed(world, [&] {
    for (const CheckpointTensor& tensor : checkpoint.tensors()) {
      if (!tensor.path.starts_with(dataset_path(kParametersGroup, ""))) {
        checksums[tensor.path] = {};
      }
    }
    const bool counts_replicated = mesh::on(mesh.coordinate(), mesh::Axis::kTensor) == 0;
    read_state(checkpoint, engine, counts_replicated, checksums);
  });
  add_up(checksums, world);
  const int num_copies = mesh.dims().data() / engine.parameters().layout().shards;
  comm::agreed_on_rank_0(world, [&] { verify(checkpoint, checksums, static_cast<uint64_t>(num_copies)); });
  const CheckpointInfo& info = checkpoint.info();
  engine.optimizer().set_num_steps(info.optimizer_steps);
  engine.loss_scaler().restore({info.loss_scale, info.good_steps, info.skipped_steps});
}

}  // namespace vit_hybrid::train
