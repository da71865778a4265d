// Zero1Optimizer: the parameters of LibTorch's optimizer in one process, at any data degree; memory; skipped steps.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <map>
#include <memory>
#include <string>

#include "parallel/comm/make_communicator.h"
#include "parallel/zero/gradient_reducer.h"
#include "parallel/zero/zero1_optimizer.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/random.h"
#include "tests/support/compare.h"

using namespace vit_hybrid;
using namespace vit_hybrid::zero;

namespace {

constexpr int kSteps = 5;
constexpr double kLr = 1e-2;
constexpr int kMicroBatches = 6;  // over the replicas, unevenly

std::vector<tensor::ParameterSpec> specs() {
  const tensor::Distribution normal{tensor::Distribution::Kind::kTruncatedNormal, 0.5, 2.0};
  return {tensor::replicated("positions", {1, 15, 8}, normal, tensor::DecayGroup::kVector),
          tensor::replicated("qkv.weight", {24, 8}, normal, tensor::DecayGroup::kMatrix),
          tensor::replicated("qkv.bias", {24}, normal, tensor::DecayGroup::kVector),
          tensor::replicated("norm.weight", {8}, normal, tensor::DecayGroup::kVector),
          tensor::replicated("scale", {1}, normal, tensor::DecayGroup::kVector),
          tensor::replicated("head.weight", {5, 8}, normal, tensor::DecayGroup::kMatrix)};
}

at::Tensor gradient(const tensor::ParameterSpec& spec, int step, int micro_batch) {
  const at::Tensor values = at::empty(spec.local_shape, at::kDouble);
  const RandomStream stream(8, Purpose::kTest, name_key(spec.name.c_str()),
                            static_cast<uint64_t>(step * kMicroBatches + micro_batch));
  for (int64_t i = 0; i < values.numel(); ++i) {
    values.data_ptr<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  }
  return values;
}

std::unique_ptr<comm::Communicator> groups_of(int size) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  return comm::make_communicator("data", world.split(world.rank() / size), at::kCPU);
}

// One data rank: buffer, reducer and optimizer.
struct Replica {
  Replica(comm::Communicator& data_axis, ZeroStage zero_stage, at::ScalarType type, const AdamOptions& options,
          int64_t bucket_elements = 60)
      : data(data_axis),
        precision{type, type, type, type},
        buffer(specs(), tensor::make_flat_layout(specs(), bucket_elements, num_shards(zero_stage, data.size())), type,
               type, at::kCPU),
        reducer(buffer, data, zero_stage, precision),
        optimizer(buffer, data, zero_stage, precision, options) {
    tensor::initialize(buffer, 1);
  }

  void step(int number, const StepDecision& decision) {
    const Range mine = Partition(kMicroBatches, data.size()).part(data.rank());
    reducer.begin_step(static_cast<int>(mine.size()));
    for (int64_t m = mine.begin; m < mine.end; ++m) {
      for (int p = static_cast<int>(buffer.specs().size()) - 1; p >= 0; --p) {
        const auto& spec = buffer.specs()[static_cast<size_t>(p)];
        buffer.parameter(p).gradient.add_(gradient(spec, number, static_cast<int>(m)));
        reducer.ready(p, static_cast<int>(m));
      }
    }
    reducer.finish();
    optimizer.step(decision);
  }

  comm::Communicator& data;
  PrecisionPolicy precision;
  tensor::ParameterBuffer buffer;
  GradientReducer reducer;
  Zero1Optimizer optimizer;
};

template <class Options>
Options torch_options(const AdamOptions& options, double weight_decay) {
  Options made(kLr);
  made.betas({options.beta1, options.beta2}).eps(options.eps).weight_decay(weight_decay);
  return made;
}

// LibTorch's optimizer of one parameter; the gradients are those of all micro-batches, times `scale`.
at::Tensor reference_weights(const tensor::ParameterSpec& spec, const AdamOptions& options, double scale) {
  const at::Tensor weights = tensor::initial_values(spec, 1).set_requires_grad(true);
  const bool decays = spec.decay == tensor::DecayGroup::kMatrix || options.decay_vectors;
  const double weight_decay = decays ? options.weight_decay : 0.0;
  const std::vector<at::Tensor> parameters{weights};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (options.kind == AdamKind::kAdam) {
    optimizer = std::make_unique<torch::optim::Adam>(parameters,
                                                     torch_options<torch::optim::AdamOptions>(options, weight_decay));
  } else {
    optimizer = std::make_unique<torch::optim::AdamW>(parameters,
                                                      torch_options<torch::optim::AdamWOptions>(options, weight_decay));
  }
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor sum = at::zeros(spec.local_shape, at::kDouble);
    for (int m = 0; m < kMicroBatches; ++m) {
      sum.add_(gradient(spec, step, m));
    }
    weights.mutable_grad() = sum.mul(scale);
    optimizer->step();
  }
  return weights.detach();
}

int64_t optimizer_bytes() {
  return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kOptimizer)];
}

}  // namespace

TEST_CASE("zero: parameters after five steps are those of torch::optim in one process") {
  const AdamOptions adam{AdamKind::kAdam, 0.9, 0.95, 1e-8, 0.0, false};
  const AdamOptions adamw{AdamKind::kAdamW, 0.9, 0.999, 1e-8, 0.1, false};
  const AdamOptions all_decay{AdamKind::kAdamW, 0.9, 0.999, 1e-8, 0.1, true};
  for (const int size : {1, 2, 3, 4, 8}) {
    const auto data = groups_of(size);
    for (const AdamOptions& options : {adam, adamw, all_decay}) {
      for (const ZeroStage stage : {ZeroStage::kReplicated, ZeroStage::kOptimizerState}) {
        for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
          Replica replica(*data, stage, type, options);
          const int64_t version = replica.buffer.version();
          for (int step = 0; step < kSteps; ++step) {
            replica.step(step, {kLr, 0.5, false});
          }
          CHECK(replica.optimizer.num_steps() == kSteps);
          CHECK(replica.buffer.version() == version + kSteps);
          for (const auto& spec : replica.buffer.specs()) {
            CAPTURE(spec.name);
            const at::Tensor expected = reference_weights(spec, options, 0.5);
            CHECK(testing::relative_error(replica.buffer.parameter(spec.name).value, expected) <=
                  (type == at::kDouble ? 1e-13 : 2e-6));
          }
        }
      }
    }
  }
}

TEST_CASE("zero: stage 1 and stage 0 give the same state, gathered over the data axis") {
  const AdamOptions options{AdamKind::kAdamW, 0.9, 0.95, 1e-8, 0.1, false};
  const auto data = groups_of(8);
  std::map<int, ParameterState> states[2];
  for (const ZeroStage stage : {ZeroStage::kReplicated, ZeroStage::kOptimizerState}) {
    Replica replica(*data, stage, at::kDouble, options);
    for (int step = 0; step < kSteps; ++step) {
      replica.step(step, {kLr, 1.0, false});
    }
    auto& of_stage = states[static_cast<int>(stage)];
    replica.optimizer.visit_state([&](int parameter, const ParameterState& state) {
      of_stage[parameter] = {state.master.clone(), state.exp_avg.clone(), state.exp_avg_sq.clone()};
    });
    CHECK(of_stage.size() == specs().size());
  }
  for (const auto& [parameter, replicated] : states[0]) {
    const ParameterState& sharded = states[1].at(parameter);
    const tensor::Shape shape = specs()[static_cast<size_t>(parameter)].local_shape;
    CHECK(sharded.exp_avg.sizes().vec() == shape);
    CHECK(testing::relative_error(sharded.master, replicated.master) <= 1e-14);
    CHECK(testing::relative_error(sharded.exp_avg, replicated.exp_avg) <= 1e-14);
    CHECK(testing::relative_error(sharded.exp_avg_sq, replicated.exp_avg_sq) <= 1e-14);
    CHECK(sharded.exp_avg_sq.gt(0).all().item<bool>());
  }
}

TEST_CASE("zero: all ranks hold the same bits after the gather") {
  const auto data = groups_of(8);
  Replica replica(*data, ZeroStage::kOptimizerState, at::kFloat, AdamOptions{});
  for (int step = 0; step < kSteps; ++step) {
    replica.step(step, {kLr, 1.0, false});
  }
  const at::Tensor largest = replica.buffer.values().clone();
  const at::Tensor smallest = largest.clone();
  data->all_reduce(largest, comm::ReduceOp::kMax).wait();
  data->all_reduce(smallest, comm::ReduceOp::kMin).wait();
  CHECK(largest.equal(smallest));
}

TEST_CASE("zero: a skipped step changes nothing") {
  const auto data = groups_of(8);
  Replica replica(*data, ZeroStage::kOptimizerState, at::kFloat, AdamOptions{});
  replica.step(0, {kLr, 1.0, false});
  const at::Tensor before = replica.buffer.values().clone();
  const int64_t version = replica.buffer.version();
  replica.step(1, {kLr, 1.0, true});
  CHECK(replica.buffer.values().equal(before));
  CHECK(replica.buffer.version() == version);
  CHECK(replica.optimizer.num_steps() == 1);
  replica.step(1, {kLr, 1.0, false});
  CHECK_FALSE(replica.buffer.values().equal(before));
}

TEST_CASE("zero: padding and gaps stay zero") {
  const auto data = groups_of(8);
  Replica replica(*data, ZeroStage::kOptimizerState, at::kFloat,
                  AdamOptions{AdamKind::kAdam, 0.9, 0.95, 1e-8, 0.1, true});
  replica.step(0, {kLr, 1.0, false});
  at::Tensor rest = replica.buffer.values().clone();
  for (const Range& slot : replica.buffer.layout().slots) {
    rest.narrow(0, slot.begin, slot.size()).zero_();
  }
  CHECK(rest.eq(0).all().item<bool>());
}

TEST_CASE("zero: optimizer state over d ranks is 8/d bytes a parameter in fp32, and the padding") {
  const MemoryTracker::Attachment attachment;
  for (const int size : {1, 2, 4, 8}) {
    const auto data = groups_of(size);
    const int64_t before = optimizer_bytes();
    const Replica replica(*data, ZeroStage::kOptimizerState, at::kFloat, AdamOptions{}, 1 << 20);
    int64_t parameters = 0;
    for (const auto& spec : replica.buffer.specs()) {
      parameters += tensor::num_elements(spec.local_shape);
    }
    const int64_t bytes = optimizer_bytes() - before;
    CHECK(bytes == 8 * replica.buffer.layout().size / data->size());
    // Of each parameter at most 15 elements are a gap, of the bucket at most 16 a rank.
    const int64_t padding = 15 * static_cast<int64_t>(specs().size()) + 16 * data->size();
    CHECK(bytes * data->size() >= 8 * parameters);
    CHECK(bytes * data->size() <= 8 * (parameters + padding));
  }
}
