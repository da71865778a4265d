// ModelRunner: one stage's inputs, losses and figures; assembly of one rank's part, and its passes. StepGraph: what
// stands at fixed addresses, and what the host does at each replay.
#include "src/train/model_runner.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "data/loading/prefetch_loader.h"
#include "model/vit_costs.h"
#include "model/vit_parameters.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/recorded_operations.h"
#include "parallel/pipeline/schedule.h"
#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/trace.h"
#include "src/train/predictions.h"

namespace vit_hybrid::train {

namespace {

// Notes which gradients a backward adds to, in its order: a replay does not call back.
class NotingSink final : public tensor::GradientSink {
 public:
  void clear() { parameters_.clear(); }
  void ready(int parameter, int /*micro_batch*/) override { parameters_.push_back(parameter); }
  void tell(const tensor::StepContext& context) const {
    for (const int parameter : parameters_) {
      context.ready(parameter);
    }
  }

 private:
  std::vector<int> parameters_;
};

// A tensor with the same values, whose memory stays where it is.
at::Tensor own_copy(const at::Tensor& tensor) {
  const MemoryScope scope(MemoryClass::kData);
  return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

}  // namespace

// With the operations between ranks that it holds.
class StepGraph::Graph {
 public:
  /// Whether all ranks of the replica have recorded theirs.
  bool record(DeviceRecorder& recorder, const comm::MpiGroup& replica, const std::function<void()>& work) {
    operations_.collect([&] { graph_ = recorder.record(work); });
    return replica.max(graph_ == nullptr ? 1 : 0) == 0;
  }
  void replay() {
    operations_.replay([this] { graph_->replay(); });
  }

 private:
  comm::RecordedOperations operations_;
  std::unique_ptr<DeviceGraph> graph_;
};

class StepGraph::Recorded {
 public:
  Recorded(DeviceRecorder& recorder, const comm::MpiGroup& replica, const at::Tensor& input, const at::Tensor& target,
           Parts parts, const Forward& forward)
      : input_(own_copy(input).set_requires_grad(true)), target_(own_copy(target)), parts_(parts.begin(), parts.end()) {
    for (tensor::StepContext& part : parts_) {
      part.sink = &sink_;
    }
    recorder.make_room();
    if (!forward_.record(recorder, replica, [this, &forward] { loss_ = forward(input_, target_, parts_); })) {
      return;
    }
    loss_gradient_ = at::zeros_like(loss_.detach());
    is_whole_ = backward_.record(recorder, replica, [this] {
      sink_.clear();
      backward_between(torch::autograd::impl::gradient_edge(loss_), loss_gradient_,
                       torch::autograd::impl::gradient_edge(input_));
    });
  }

  bool is_whole() const { return is_whole_; }

  // The loss is copied because the next replay writes over it.
  at::Tensor replay(const at::Tensor& input, const at::Tensor& target, const tensor::StepContext& context) {
    const at::Tensor loss = without_grad([&] {
      input_.copy_(input);
      target_.copy_(target);
      forward_.replay();
      return loss_.detach().clone();
    });
    return record("StepGraph", loss, {input}, [this, &context](const at::Tensor& gradient) {
      loss_gradient_.copy_(gradient);
      backward_.replay();
      sink_.tell(context);
      return std::vector<at::Tensor>{at::Tensor()};
    });
  }

 private:
  at::Tensor input_;
  at::Tensor target_;
  std::vector<tensor::StepContext> parts_;
  NotingSink sink_;
  at::Tensor loss_;
  at::Tensor loss_gradient_;
  Graph forward_;
  Graph backward_;
  bool is_whole_ = false;
};

StepGraph::StepGraph(std::shared_ptr<DeviceRecorder> recorder, const comm::MpiGroup& replica)
    : replica_(replica), recorder_(std::move(recorder)) {}

StepGraph::~StepGraph() = default;

at::Tensor StepGraph::run(const MicroBatchKind& kind, const at::Tensor& input, const at::Tensor& target, Parts parts,
                          const Forward& forward) {
  if (recorder_ == nullptr) {
    return forward(input, target, parts);
  }
  const auto [found, is_first] = kinds_.try_emplace(kind);
  if (is_first) {
    // What it keeps for backward lies in ordinary memory. What the other kinds have reserved would be held beside it,
    // so it is given up: they are recorded again, and from then on all of them share theirs.
    for (auto& [other, recorded] : kinds_) {
      recorded = nullptr;
    }
    return forward(input, target, parts);
  }
  if (found->second == nullptr) {
    found->second = std::make_unique<Recorded>(*recorder_, replica_, input, target, parts, forward);
    if (!found->second->is_whole()) {
      kinds_.clear();
      recorder_->make_room();
      recorder_ = nullptr;
      return forward(input, target, parts);
    }
  }
  return found->second->replay(input, target, parts.front());
}

VitProgram::VitProgram(const model::VitOptions& options, Range units, model::VitStage& stage, mesh::DeviceMesh& mesh,
                       at::ScalarType compute_type, at::ScalarType wide_type, int micro_batch_parts,
                       std::shared_ptr<DeviceRecorder> recorder)
    : options_(options),
      units_(units),
      stage_(stage),
      device_(mesh.device()),
      compute_type_(compute_type),
      wide_type_(wide_type),
      micro_batch_parts_(micro_batch_parts),
      num_replicas_(mesh.data().size()),
      whole_forward_([this](const at::Tensor& input, const at::Tensor& target, StepGraph::Parts parts) {
        return loss(stage_.forward(input, parts), target);
      }),
      step_graph_(recorder == nullptr ? nullptr : std::make_unique<StepGraph>(std::move(recorder), mesh.model())) {
  VH_ASSERT(step_graph_ == nullptr || (is_first() && is_last()), "a stage of a model is not recorded");
}

void VitProgram::set_loss_weights(const model::FieldWeights& weights) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const auto there = [this](const at::Tensor& given) { return given.defined() ? given.to(device_) : given; };
  loss_weights_ = is_last() ? model::FieldWeights{there(weights.rows), there(weights.channels)} : model::FieldWeights();
}

void VitProgram::begin(StepPlan plan, data::NextBatch next_batch) {
  plan_ = std::move(plan);
  next_batch_ = std::move(next_batch);
  next_micro_batch_ = 0;
  batches_.clear();
  contexts_.clear();
  for (const auto& samples : plan_.micro_batches) {
    tensor::StepContext context = plan_.context;
    context.micro_batch = static_cast<int>(contexts_.size());
    context.samples = samples;
    contexts_.push_back(tensor::cut(context, micro_batch_parts_));
  }
}

bool VitProgram::is_recorded(int micro_batch) const {
  if (step_graph_ == nullptr || !plan_.context.training()) {
    return false;
  }
  return num_replicas_ == 1 || (micro_batch > 0 && micro_batch + 1 < std::ssize(contexts_));
}

data::Batch& VitProgram::batch(int micro_batch) {
  const auto found = batches_.find(micro_batch);
  if (found != batches_.end()) {
    return found->second;
  }
  VH_ASSERT(micro_batch == next_micro_batch_, str("micro-batch ", micro_batch, " asked for out of order"));
  const tensor::StepContext& context = plan_.context;
  const trace::Scope slice(
      {.kind = trace::Kind::kCopy,
       .name = "data copy in",
       .step = context.training() ? static_cast<int64_t>(context.step) + 1 : -1});  // as the log counts
  data::Batch next = next_batch_();
  VH_ASSERT(next.samples == plan_.micro_batches[static_cast<size_t>(micro_batch)], "the loader is out of step");
  ++next_micro_batch_;
  return batches_.emplace(micro_batch, std::move(next)).first->second;
}

at::Tensor VitProgram::on_device(const at::Tensor& part, const data::StoredScaling* scaling,
                                 data::BatchNormalizer& normalizer, at::ScalarType number_type) {
  const MemoryScope scope(MemoryClass::kData);
  const at::ScalarType stored = part.scalar_type();
  if (scaling == nullptr || stored == at::kLong) {
    return data::to_device(part, device_, part.is_floating_point() ? number_type : stored);
  }
  if (!normalizer.is_for(scaling)) {
    normalizer = data::BatchNormalizer(*scaling, device_);
  }
  return normalizer.normalized(data::to_device(part, device_, stored), number_type);
}

void VitProgram::fetch(int micro_batch) {
  if (is_first() || (is_last() && plan_.prediction == nullptr)) {
    batch(micro_batch);
  }
}

at::Tensor VitProgram::input(int micro_batch) {
  const data::Batch& samples = batch(micro_batch);
  return on_device(samples.inputs, samples.scaling, input_normalizer_, compute_type_);
}

std::vector<int64_t> VitProgram::input_shape(int micro_batch) const {
  const auto samples = static_cast<int64_t>(plan_.micro_batches[static_cast<size_t>(micro_batch)].size());
  return {samples, options_.num_tokens(), options_.embed_dim};
}

at::Tensor VitProgram::forward(int micro_batch, const at::Tensor& input) {
  const MemoryScope scope(MemoryClass::kActivations);
  const std::vector<tensor::StepContext>& contexts = contexts_[static_cast<size_t>(micro_batch)];
  if (is_recorded(micro_batch)) {
    const MicroBatchKind kind{input.size(0), plan_.global_batch};
    return step_graph_->run(kind, input, aim(batch(micro_batch)), contexts, whole_forward_);
  }
  const at::Tensor output = stage_.forward(input, contexts);
  if (!is_last()) {
    return output;
  }
  if (plan_.prediction != nullptr) {
    *plan_.prediction = model::fields_of(output, options_).to(wide_type_);
    return at::zeros({}, output.options());
  }
  const data::Batch& samples = batch(micro_batch);
  const at::Tensor result = loss(output, aim(samples));
  if (plan_.evaluation != nullptr) {
    count(result.item<double>() * static_cast<double>(plan_.global_batch), output, samples);
  }
  return result;
}

at::Tensor VitProgram::target(const data::Batch& batch) {
  return on_device(batch.targets, batch.target_scaling, target_normalizer_, wide_type_);
}

at::Tensor VitProgram::states(const data::Batch& batch) {
  const auto& within = batch.states_in_inputs;
  const at::Tensor states = within ? batch.inputs.narrow(1, within->begin, within->size()).contiguous() : batch.states;
  return on_device(states, batch.target_scaling, target_normalizer_, wide_type_);
}

at::Tensor VitProgram::aim(const data::Batch& batch) {
  return plan_.increments == nullptr ? target(batch) : plan_.increments->target(target(batch), states(batch));
}

at::Tensor VitProgram::loss(const at::Tensor& prediction, const at::Tensor& target) const {
  if (options_.task == model::Task::kForecast) {
    return model::field_loss(options_.loss, prediction, target, options_.output_grid(), plan_.global_batch,
                             loss_weights_);
  }
  return model::cross_entropy_loss(prediction, target, options_.label_smoothing, plan_.global_batch);
}

void VitProgram::count(double loss_sum, const at::Tensor& prediction, const data::Batch& batch) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  if (options_.task == model::Task::kForecast) {
    const at::Tensor start = states(batch);
    const at::Tensor fields = model::fields_of(prediction, options_);
    plan_.evaluation->add_forecast(
        loss_sum, plan_.increments == nullptr ? fields : plan_.increments->state(fields.to(wide_type_), start),
        target(batch), start);
  } else {
    const at::Tensor logits = prediction.to(wide_type_);
    const at::Tensor labels = target(batch);
    plan_.evaluation->add_classification(loss_sum, logits, labels);
    if (plan_.predictions != nullptr) {
      plan_.predictions->add(batch.samples, logits, labels);
    }
  }
}

void VitProgram::release(int micro_batch) {
  batches_.erase(micro_batch);
}

namespace {

tensor::ParameterBuffer make_buffer(const model::VitOptions& options, Range units,
                                    const zero::PrecisionPolicy& precision, mesh::DeviceMesh& mesh,
                                    const std::optional<TrainingOptions>& training) {
  const TrainingOptions chosen = training.value_or(TrainingOptions());
  auto specs =
      model::parameter_specs(options, units, mesh.pipeline().rank(), mesh.tensor().rank(), mesh.tensor().size());
  const int64_t bucket = tensor::bucket_elements(chosen.bucket_bytes, precision.gradient, mesh.device().type());
  auto layout = tensor::make_flat_layout(specs, bucket, chosen.shards);
  const auto gradient = training ? std::optional(precision.gradient) : std::nullopt;
  const bool shareable = training && mesh.data().may_share();
  return {std::move(specs), std::move(layout), precision.compute, gradient, mesh.device(), shareable};
}

}  // namespace

ModelRunner::ModelRunner(const model::VitOptions& options, const zero::PrecisionPolicy& precision,
                         mesh::DeviceMesh& mesh, const std::optional<TrainingOptions>& training)
    : mesh_(mesh),
      stages_(pipeline::partition_stages(model::unit_costs(options), mesh.pipeline().size())),
      units_(stages_[static_cast<size_t>(mesh.pipeline().rank())]),
      buffer_(make_buffer(options, units_, precision, mesh, training)),
      stage_(options, units_, buffer_, mesh.tensor(), training ? training->recompute : model::Recompute::kNone),
      program_(options, units_, stage_, mesh, precision.compute, precision.master,
               training ? training->micro_batch_parts : 1, training ? training->recorder : nullptr),
      runner_(mesh.pipeline(), {&program_}) {}

void ModelRunner::run(const pipeline::Schedule& schedule, StepPlan plan, data::NextBatch next_batch) {
  VH_ASSERT(buffer_.has_gradients() || !pipeline::has_backward(schedule), "a model in use has no gradients to add to");
  const double loss_scale = plan.loss_scale;
  const at::Tensor loss = plan.loss;
  program_.begin(std::move(plan), std::move(next_batch));
  runner_.run(schedule, loss_scale, loss);
}

void ModelRunner::evaluate(StepPlan plan, data::NextBatch next_batch) {
  const comm::PhaseScope phase("validation");
  const auto num_micro_batches = static_cast<int>(plan.micro_batches.size());
  run(pipeline::make_forward_only(mesh_.pipeline().size(), num_micro_batches), std::move(plan), std::move(next_batch));
}

at::Tensor ModelRunner::predict(const at::Tensor& inputs, int64_t num_samples) {
  const comm::PhaseScope phase("prediction");
  at::Tensor output;
  std::vector<int64_t> samples(static_cast<size_t>(num_samples));
  std::iota(samples.begin(), samples.end(), int64_t{0});
  StepPlan plan;
  plan.micro_batches = {samples};
  plan.prediction = is_last_stage() ? &output : nullptr;
  run(pipeline::make_forward_only(mesh_.pipeline().size(), 1), std::move(plan), [&] {
    data::Batch batch;
    batch.samples = samples;
    batch.inputs = inputs;
    return batch;
  });
  return output;
}

}  // namespace vit_hybrid::train
