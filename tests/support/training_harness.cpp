// Training runs for the parity tests: the real Engine, data from keyed draws.
#include "tests/support/training_harness.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "data/sampler.h"
#include "src/base/text.h"
#include "tests/support/compare.h"
#include "tests/support/vit_harness.h"

namespace vit_hybrid::testing {

namespace {

at::Tensor whole(const tensor::ParameterSpec& spec, const at::Tensor& local, mesh::DeviceMesh& mesh) {
  return gather_global(spec, local.to(at::kDouble), mesh.tensor()).cpu();
}

// Under ZeRO-1 a rank holds the sums of its own shard only: the shards of all data ranks make the gradient.
at::Tensor whole_flat_gradient(const tensor::ParameterBuffer& buffer, mesh::DeviceMesh& mesh, zero::ZeroStage stage) {
  const at::Tensor flat = buffer.gradients().clone();
  if (stage == zero::ZeroStage::kReplicated) {
    return flat;
  }
  for (size_t b = 0; b < buffer.layout().buckets.size(); ++b) {
    const Range bucket = buffer.layout().buckets[b].range;
    const Range own = buffer.layout().shard_of(static_cast<int>(b), mesh.data().rank());
    const at::Tensor part = flat.narrow(0, own.begin, own.size()).clone();
    mesh.data().all_gather(flat.narrow(0, bucket.begin, bucket.size()), part).wait();
  }
  return flat;
}

TensorsByName gather_gradients(train::Engine& engine, mesh::DeviceMesh& mesh, zero::ZeroStage stage) {
  const auto& buffer = engine.parameters();
  const at::Tensor flat = whole_flat_gradient(buffer, mesh, stage);
  TensorsByName result;
  for (size_t i = 0; i < buffer.specs().size(); ++i) {
    const auto& spec = buffer.specs()[i];
    const Range slot = buffer.layout().slots[i];
    result[spec.name] = whole(spec, flat.narrow(0, slot.begin, slot.size()).reshape(spec.local_shape), mesh);
  }
  return result;
}

void gather_state(train::Engine& engine, mesh::DeviceMesh& mesh, TrainingOutcome& out) {
  const auto& specs = engine.parameters().specs();
  engine.optimizer().visit_state([&](int parameter, const zero::ParameterState& state) {
    const auto& spec = specs[static_cast<size_t>(parameter)];
    out.parameters[spec.name] = whole(spec, engine.parameters().parameter(parameter).value, mesh);
    out.exp_avg[spec.name] = whole(spec, state.exp_avg, mesh);
    out.exp_avg_sq[spec.name] = whole(spec, state.exp_avg_sq, mesh);
  });
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
  plan.context.mode = tensor::Mode::kTraining;
  return plan;
}

double sum_over_world(double loss, mesh::DeviceMesh& mesh) {
  const at::Tensor sum = at::tensor({mesh.tensor().rank() == 0 ? loss : 0.0}, at::kDouble);
  mesh.host_world().all_reduce(sum, comm::ReduceOp::kSum).wait();
  return sum.item<double>();
}

double relative(double a, double b) {
  return std::abs(a - b) / std::max(std::abs(b), 1e-300);
}

}  // namespace

std::string Layout::text() const {
  return str("dp ", dp, " tp ", tp, " pp ", pp, " zero ", static_cast<int>(zero), " ", schedule, " ", order);
}

data::Batch make_batch(const model::VitOptions& options, const std::vector<int64_t>& samples) {
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

TrainingOutcome run(const Experiment& experiment, const Layout& layout, const comm::MpiGroup& world,
                    c10::Device device) {
  mesh::DeviceMesh mesh(mesh::ParallelDims(layout.dp, layout.tp, layout.pp, layout.order), world, device);
  train::EngineOptions options = experiment.options;
  options.zero_stage = layout.zero;
  options.schedule = layout.schedule;
  train::Engine engine(options, mesh);
  TrainingOutcome out;
  for (size_t step = 0; step < experiment.global_batches.size(); ++step) {
    train::StepPlan plan = make_plan(experiment, static_cast<int64_t>(step), mesh);
    auto queue = std::make_shared<std::vector<std::vector<int64_t>>>(plan.micro_batches);
    auto next = std::make_shared<size_t>(0);
    const auto result = engine.train_step(
        std::move(plan), [&options, queue, next] { return make_batch(options.model, (*queue)[(*next)++]); },
        experiment.learning_rate);
    out.losses.push_back(sum_over_world(result.loss, mesh));
    out.grad_norms.push_back(result.grad_norm);
    out.gradients.push_back(gather_gradients(engine, mesh, layout.zero));
  }
  gather_state(engine, mesh, out);
  return out;
}

Errors compare(const TrainingOutcome& outcome, const TrainingOutcome& reference, double learning_rate) {
  Errors errors;
  const auto steps = reference.losses.size();
  for (size_t step = 0; step < steps; ++step) {
    errors.loss = std::max(errors.loss, relative(outcome.losses[step], reference.losses[step]));
    errors.norm = std::max(errors.norm, relative(outcome.grad_norms[step], reference.grad_norms[step]));
    for (const auto& [name, gradient] : outcome.gradients[step]) {
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
    errors.moment = std::max(errors.moment, gradient_error(name, outcome.exp_avg.at(name), reference.exp_avg.at(name)));
    errors.moment =
        std::max(errors.moment, gradient_error(name, outcome.exp_avg_sq.at(name), reference.exp_avg_sq.at(name)));
  }
  return errors;
}

}  // namespace vit_hybrid::testing
