// Training runs for the parity tests: the real Engine, data from keyed draws.
#include "tests/support/training_harness.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "data/loading/sampler.h"
#include "parallel/comm/statistics.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/format.h"
#include "src/train/engine.h"
#include "src/train/saving/checkpointer.h"
#include "src/train/saving/engine_state.h"
#include "src/train/saving/resume.h"
#include "tests/support/compare.h"
#include "tests/support/optimizer_step.h"
#include "tests/support/vit_harness.h"

namespace vit_hybrid::testing {

namespace {

at::Tensor whole(const tensor::ParameterSpec& spec, const at::Tensor& local, mesh::DeviceMesh& mesh) {
  return gather_global(spec, local.to(at::kDouble), mesh.tensor()).cpu();
}

// A rank holds the sums of its own shard only: the shards together make the gradient.
at::Tensor whole_flat_gradient(const tensor::ParameterBuffer& buffer, const zero::StateGroups& groups) {
  const at::Tensor flat = buffer.gradients().clone();
  if (groups.shard == nullptr) {
    return flat;
  }
  for (size_t b = 0; b < buffer.layout().buckets.size(); ++b) {
    const Range bucket = buffer.layout().buckets[b].range;
    const Range own = buffer.layout().shard_of(static_cast<int>(b), groups.place().shard);
    const at::Tensor part = flat.narrow(0, own.begin, own.size()).clone();
    groups.shard->all_gather(flat.narrow(0, bucket.begin, bucket.size()), part).wait();
  }
  return flat;
}

TensorsByName gather_gradients(train::Engine& engine, mesh::DeviceMesh& mesh, zero::ZeroStage stage,
                               double loss_scale) {
  const auto& buffer = engine.parameters();
  const at::Tensor flat = whole_flat_gradient(buffer, zero::state_groups(mesh, stage)).to(at::kDouble).div_(loss_scale);
  TensorsByName result;
  for (size_t i = 0; i < buffer.specs().size(); ++i) {
    const auto& spec = buffer.specs()[i];
    const Range slot = buffer.layout().slots[i];
    result[spec.name] = whole(spec, flat.narrow(0, slot.begin, slot.size()).reshape(spec.local_shape), mesh);
  }
  return result;
}

bool have_equal_bits(const at::Tensor& values, comm::Communicator& ranks) {
  const at::Tensor bytes = values.clone().view(at::kByte);
  const at::Tensor first = bytes.clone();
  ranks.broadcast(first, 0).wait();
  const at::Tensor differ = first.ne(bytes).any().to(at::kInt);
  ranks.all_reduce(differ, comm::ReduceOp::kMax).wait();
  return differ.item<int>() == 0;
}

void gather_state(train::Engine& engine, mesh::DeviceMesh& mesh, zero::ZeroStage stage, TrainingOutcome& out) {
  const auto names = engine.optimizer().state_names();
  const auto states = whole_states(engine.optimizer(), engine.parameters(), zero::state_groups(mesh, stage));
  out.replicas_are_equal = have_equal_bits(engine.parameters().values(), mesh.data());
  for (size_t p = 0; p < states.size(); ++p) {
    const auto& spec = engine.parameters().specs()[p];
    const at::Tensor& value = engine.parameters().parameter(static_cast<int>(p)).value;
    out.parameters[spec.name] = whole(spec, states[p].master, mesh);
    out.parameters_are_cast = out.parameters_are_cast && states[p].master.to(value.scalar_type()).equal(value);
    for (size_t i = 0; i < names.size(); ++i) {
      out.states[names[i]][spec.name] = whole(spec, states[p].state[i], mesh);
    }
  }
}

train::StepPlan make_plan(const Experiment& experiment, int64_t step, mesh::DeviceMesh& mesh) {
  const int64_t batch = experiment.global_batches[static_cast<size_t>(step)];
  std::vector<int64_t> samples(static_cast<size_t>(batch));
  std::iota(samples.begin(), samples.end(), 100 * step);
  const Range own = Partition(batch, mesh.data().size()).part(mesh.data().rank());
  const auto mine =
      std::span<const int64_t>(samples).subspan(static_cast<size_t>(own.begin), static_cast<size_t>(own.size()));
  train::StepPlan plan;
  for (const auto micro_batch : data::micro_batches(mine, experiment.micro_batch_size)) {
    plan.micro_batches.emplace_back(micro_batch.begin(), micro_batch.end());
  }
  plan.global_batch = batch;
  plan.context.seed = experiment.options.seed;
  plan.context.step = step;
  plan.context.mode = Mode::kTraining;
  return plan;
}

double sum_over_world(double loss, mesh::DeviceMesh& mesh) {
  const at::Tensor sum = at::tensor({mesh.tensor().rank() == 0 ? loss : 0.0}, at::kDouble);
  mesh.host_world().all_reduce(sum, comm::ReduceOp::kSum).wait();
  return sum.item<double>();
}

train::EngineOptions engine_options(const Experiment& experiment, const Layout& layout) {
  train::EngineOptions options = experiment.options;
  options.zero_stage = layout.zero;
  options.schedule = layout.schedule;
  return options;
}

double relative(double a, double b) {
  return std::abs(a - b) / std::max(std::abs(b), 1e-300);
}

}  // namespace

std::string Layout::text() const {
  return str("dp ", dp, " tp ", tp, " pp ", pp, " zero ", static_cast<int>(zero),
             shard > 0 ? str(" over ", shard, " ranks ") : " ", schedule, " ", order);
}

bool equal(const TensorsByName& some, const TensorsByName& others) {
  bool all = some.size() == others.size();
  for (const auto& [name, tensor] : some) {
    all = all && tensor.equal(others.at(name));
  }
  return all;
}

bool same(const TrainingOutcome& a, const TrainingOutcome& b) {
  const auto same_states = [](const auto& one, const auto& other) { return equal(one.second, other.second); };
  return a.losses == b.losses && a.grad_norms == b.grad_norms && a.loss_scales == b.loss_scales &&
         a.skipped == b.skipped && equal(a.parameters, b.parameters) &&
         std::equal(a.gradients.begin(), a.gradients.end(), b.gradients.begin(), b.gradients.end(), equal) &&
         std::equal(a.states.begin(), a.states.end(), b.states.begin(), b.states.end(), same_states);
}

std::vector<at::Tensor> changed_tensors(train::Engine& engine) {
  std::vector<at::Tensor> tensors = {engine.parameters().values(), engine.parameters().gradients(),
                                     engine.control().values()};
  for (const zero::OwnedState& owned : engine.optimizer().owned_state()) {
    tensors.push_back(owned.master);
    tensors.insert(tensors.end(), owned.state.begin(), owned.state.end());
  }
  return tensors;
}

OperationCounts::Counts OperationCounts::now() {
  Counts counts;
  for (const comm::AxisStatistics& axis : comm::statistics()) {
    for (const comm::OperationCount& count : axis.counts) {
      counts[axis.axis].insert(counts[axis.axis].end(), {count.operations, count.bytes});
    }
  }
  return counts;
}

OperationCounts::Counts OperationCounts::of_last_part() {
  const Counts before = std::exchange(until_now_, now());
  Counts part;
  for (auto [axis, values] : until_now_) {
    if (const auto found = before.find(axis); found != before.end()) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] -= found->second[i];
      }
    }
    const bool is_used = std::any_of(values.begin(), values.end(), [](int64_t value) { return value != 0; });
    if (is_used) part[axis] = values;
  }
  return part;
}

model::FieldWeights uneven_weights(const model::VitOptions& options) {
  const auto rising = [](int64_t count) { return at::arange(1, count + 1, at::kDouble) * (2.0 / double(count + 1)); };
  return {rising(options.image_height), rising(options.out_channels)};
}

data::Batch make_batch(const model::VitOptions& options, const std::vector<int64_t>& samples) {
  const MemoryScope scope(MemoryClass::kData);
  data::Batch batch;
  batch.samples = samples;
  const auto n = static_cast<int64_t>(samples.size());
  const std::vector<int64_t> image = {options.in_channels, options.image_height, options.image_width};
  batch.inputs = at::empty({n, image[0], image[1], image[2]}, at::kDouble);
  const bool forecast = options.task == model::Task::kForecast;
  batch.targets = forecast ? at::empty_like(batch.inputs) : at::empty({n}, at::kLong);
  for (int64_t i = 0; i < n; ++i) {
    const auto sample = static_cast<uint64_t>(samples[static_cast<size_t>(i)]);
    batch.inputs[i].copy_(normal_tensor(image, 2 * sample + 1000));
    if (forecast) {
      batch.targets[i].copy_(normal_tensor(image, 2 * sample + 1001));
    } else {
      batch.targets[i] = static_cast<int64_t>(sample) % options.num_classes;
    }
  }
  return batch;
}

Training::Training(const Experiment& experiment, const Layout& layout, const comm::MpiGroup& world, c10::Device device)
    : experiment_(experiment),
      layout_(layout),
      world_(world),
      mesh_(mesh::ParallelDims(layout.dp, layout.tp, layout.pp, layout.order,
                               layout.shard > 0 ? layout.shard : layout.dp),
            world, device, experiment.transport),
      options_(engine_options(experiment, layout)),
      engine_(options_, mesh_) {
  engine_.model().set_loss_weights(experiment.loss_weights);
}

void Training::run_steps(int64_t count) {
  const auto num_steps = static_cast<int64_t>(experiment_.global_batches.size());
  const int64_t end = count < 0 ? num_steps : std::min(step_ + count, num_steps);
  for (; step_ < end; ++step_) {
    train::StepPlan plan = make_plan(experiment_, step_, mesh_);
    auto queue = std::make_shared<std::vector<std::vector<int64_t>>>(plan.micro_batches);
    auto next = std::make_shared<size_t>(0);
    const auto result = engine_.train_step(
        std::move(plan), [this, queue, next] { return make_batch(options_.model, (*queue)[(*next)++]); },
        experiment_.learning_rate * std::pow(experiment_.learning_rate_factor, static_cast<double>(step_)));
    outcome_.losses.push_back(sum_over_world(result.loss, mesh_));
    outcome_.grad_norms.push_back(result.grad_norm);
    outcome_.loss_scales.push_back(result.loss_scale);
    outcome_.skipped.push_back(result.skipped);
    if (!experiment_.gathers_gradients) continue;
    outcome_.gradients.push_back(gather_gradients(engine_, mesh_, layout_.zero, result.loss_scale));
  }
}

void Training::save(const std::string& path) {
  train::CheckpointInfo info;
  info.version = "test";
  info.model = train::model_json(options_.model);
  info.optimizer = engine_.optimizer().name();
  info.step = step_;
  info.optimizer_steps = engine_.optimizer().num_steps();
  const zero::LossScaleState scale = engine_.loss_scaler().state();
  info.loss_scale = scale.scale;
  info.good_steps = scale.good_steps;
  info.skipped_steps = scale.skipped_steps;
  info.layout = layout_.text();
  train::save_checkpoint(world_, mesh_, engine_, options_.model, info, path);
}

void Training::load(const std::string& path) {
  const train::CheckpointReader checkpoint(world_, path);
  train::restore(checkpoint, engine_, mesh_, world_);
  step_ = checkpoint.info().step;
  outcome_ = {};
  outcome_.first_step = step_;
}

train::Checksums state_checksums(train::Engine& engine, const model::VitOptions& options, const mesh::DeviceMesh& mesh,
                                 const comm::MpiGroup& world) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const auto groups = train::state_groups(engine);
  train::Checksums checksums;
  for (const train::GlobalTensor& tensor : train::global_tensors(options)) {
    for (const std::string& group : groups) {
      checksums[train::dataset_path(group, tensor.name)] = {};
    }
  }
  for (const train::StatePiece& piece : train::written_pieces(engine, mesh)) {
    const auto& spec = engine.parameters().specs()[static_cast<size_t>(piece.parameter)];
    for (size_t i = 0; i < groups.size(); ++i) {
      checksums.at(train::dataset_path(groups[i], spec.name))
          .add(spec.global_shape, piece.box.global_offset, piece.values[i].cpu());
    }
  }
  train::add_up(checksums, world);
  return checksums;
}

std::map<std::string, std::string> Training::checksums() {
  std::map<std::string, std::string> texts;
  for (const auto& [dataset, checksum] : state_checksums(engine_, options_.model, mesh_, world_)) {
    texts[dataset] = checksum.text();
  }
  return texts;
}

std::vector<train::ParameterHistograms> Training::histograms() {
  return train::parameter_histograms(engine_, options_.model, mesh_, outcome_.loss_scales.back());
}

TrainingOutcome Training::outcome() {
  gather_state(engine_, mesh_, options_.zero_stage, outcome_);
  return outcome_;
}

TrainingOutcome run(const Experiment& experiment, const Layout& layout, const comm::MpiGroup& world,
                    c10::Device device) {
  Training training(experiment, layout, world, device);
  training.run_steps();
  return training.outcome();
}

Errors compare(const TrainingOutcome& outcome, const TrainingOutcome& reference, double learning_rate) {
  Errors errors;
  const auto steps = reference.losses.size();
  const auto first_step = static_cast<size_t>(outcome.first_step);
  for (size_t i = 0; i < outcome.losses.size(); ++i) {
    const size_t step = first_step + i;
    errors.loss = std::max(errors.loss, relative(outcome.losses[i], reference.losses[step]));
    errors.norm = std::max(errors.norm, relative(outcome.grad_norms[i], reference.grad_norms[step]));
    for (const auto& [name, gradient] : outcome.gradients[i]) {
      const double error = gradient_error(name, gradient, reference.gradients[step].at(name));
      if (!(error <= errors.gradient)) {
        errors.gradient = error;
        errors.worst = str(name, " in step ", step);
      }
    }
  }
  for (const auto& [name, parameter] : outcome.parameters) {
    errors.parameter = std::max(errors.parameter, parameter_error(name, parameter, reference.parameters.at(name),
                                                                  learning_rate, static_cast<int64_t>(steps)));
  }
  for (const auto& [state, tensors] : outcome.states) {
    for (const auto& [name, tensor] : tensors) {
      errors.state = std::max(errors.state, gradient_error(name, tensor, reference.states.at(state).at(name)));
    }
  }
  return errors;
}

}  // namespace vit_hybrid::testing
