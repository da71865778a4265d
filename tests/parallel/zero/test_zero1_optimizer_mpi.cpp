// Zero1Optimizer: the parameters of the textbook's optimizers in one process, at any data and tensor degree; memory;
// skipped steps.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "parallel/comm/make_communicator.h"
#include "parallel/zero/gradient_reducer.h"
#include "parallel/zero/zero1_optimizer.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/random.h"
#include "tests/support/compare.h"
#include "tests/support/data_axis.h"
#include "tests/support/optimizer_step.h"
#include "tests/support/textbook_optimizer.h"

using namespace vit_hybrid;
using namespace vit_hybrid::zero;

namespace {

constexpr int kSteps = 5;
constexpr double kLr = 1e-2;
constexpr int kMicroBatches = 6;  // over the replicas, unevenly

std::vector<tensor::ParameterSpec> optimized_specs() {
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

// One data rank: buffer, reducer and optimizer.
struct Replica {
  Replica(const testing::DataAxis& axis, at::ScalarType type, const OptimizerOptions& options,
          int64_t bucket_elements = 60)
      : data(axis.data()),
        groups(axis.groups()),
        tensor("tensor", at::kCPU),
        precision{type, type, type, type},
        buffer(optimized_specs(), tensor::make_flat_layout(optimized_specs(), bucket_elements, groups.num_shards()),
               type, type, at::kCPU),
        reducer(buffer, groups, precision),
        optimizer(buffer, groups, tensor, precision, options),
        control(at::kCPU) {
    tensor::initialize(buffer.specs(), optimizer, 1);
  }

  void step(int number, double gradient_scale, bool skip = false) {
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
    testing::step(optimizer, control, kLr, gradient_scale, skip);
  }

  comm::Communicator& data;
  StateGroups groups;
  comm::SelfCommunicator tensor;
  PrecisionPolicy precision;
  tensor::ParameterBuffer buffer;
  GradientReducer reducer;
  Zero1Optimizer optimizer;
  StepControl control;
};

bool is_matrix(const tensor::ParameterSpec& spec) {
  return spec.decay == tensor::DecayGroup::kMatrix;
}

// The textbook's optimizer of one parameter; the gradients are those of all micro-batches, times `scale`.
testing::TextbookOptimizer reference(const tensor::ParameterSpec& spec, const OptimizerOptions& options, double scale) {
  testing::TextbookOptimizer optimizer(options, tensor::initial_values(spec, 1), is_matrix(spec));
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor sum = at::zeros(spec.local_shape, at::kDouble);
    for (int m = 0; m < kMicroBatches; ++m) {
      sum.add_(gradient(spec, step, m));
    }
    optimizer.step(sum.mul(scale), kLr);
  }
  return optimizer;
}

OptimizerOptions options_of(OptimizerKind kind, double weight_decay = 0.1, bool decay_vectors = false) {
  OptimizerOptions options;
  options.kind = kind;
  options.weight_decay = weight_decay;
  options.decay_vectors = decay_vectors;
  options.trust_coefficient = 0.3;
  return options;
}

// Every optimizer, and what else decides on numbers.
std::vector<OptimizerOptions> all_options() {
  std::vector<OptimizerOptions> all = {options_of(OptimizerKind::kAdam, 0.0), options_of(OptimizerKind::kAdam)};
  for (const bool decay_vectors : {false, true}) {
    for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kLamb, OptimizerKind::kLars}) {
      all.push_back(options_of(kind, 0.1, decay_vectors));
    }
  }
  all.push_back(options_of(OptimizerKind::kLamb, 0.0));  // scaled though nothing decays
  all.push_back(options_of(OptimizerKind::kSgd));
  all.back().nesterov = true;
  all.push_back(options_of(OptimizerKind::kSgd));
  all.back().momentum = 0.0;
  return all;
}

int64_t optimizer_bytes() {
  return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kOptimizer)];
}

}  // namespace

TEST_CASE("zero: parameters and state after five steps are those of the textbook in one process") {
  for (const int size : {1, 2, 3, 4, 8}) {
    const comm::MpiGroup ranks = testing::data_ranks(size);
    for (const int part : testing::part_sizes(ranks.size())) {
      const testing::DataAxis axis(ranks, part);
      CAPTURE(part);
      for (const OptimizerOptions& options : all_options()) {
        CAPTURE(optimizer_name(options.kind));
        for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
          Replica replica(axis, type, options);
          const int64_t version = replica.buffer.version();
          for (int step = 0; step < kSteps; ++step) {
            replica.step(step, 0.5);
          }
          CHECK(replica.optimizer.num_steps() == kSteps);
          CHECK(replica.buffer.version() == version + kSteps);
          const auto names = replica.optimizer.state_names();
          const auto states = testing::whole_states(replica.optimizer, replica.buffer, replica.groups);
          for (size_t p = 0; p < states.size(); ++p) {
            const auto& spec = replica.buffer.specs()[p];
            CAPTURE(spec.name);
            const testing::TextbookOptimizer expected = reference(spec, options, 0.5);
            const double bound = type == at::kDouble ? 1e-13 : 2e-6;
            CHECK(testing::relative_error(replica.buffer.parameter(spec.name).value, expected.weights()) <= bound);
            REQUIRE(states[p].state.size() == expected.states().size());
            for (size_t i = 0; i < names.size(); ++i) {
              CHECK(testing::relative_error(states[p].state[i], expected.states().at(names[i])) <= bound);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("zero: stage 1 and stage 0 give the same state, gathered over the data axis") {
  const OptimizerOptions options = options_of(OptimizerKind::kAdamW);
  const comm::MpiGroup ranks = testing::data_ranks(8);
  std::vector<testing::WholeState> states[2];
  for (const bool is_sharded : {false, true}) {
    const testing::DataAxis axis(ranks, is_sharded ? ranks.size() : 1);
    Replica replica(axis, at::kDouble, options);
    for (int step = 0; step < kSteps; ++step) {
      replica.step(step, 1.0);
    }
    auto& of_stage = states[is_sharded ? 1 : 0];
    of_stage = testing::whole_states(replica.optimizer, replica.buffer, replica.groups);
    CHECK(of_stage.size() == optimized_specs().size());
  }
  for (size_t p = 0; p < states[0].size(); ++p) {
    const testing::WholeState& replicated = states[0][p];
    const testing::WholeState& sharded = states[1][p];
    const tensor::Shape shape = optimized_specs()[p].local_shape;
    CHECK(sharded.state[0].sizes().vec() == shape);
    CHECK(testing::relative_error(sharded.master, replicated.master) <= 1e-14);
    CHECK(testing::relative_error(sharded.state[0], replicated.state[0]) <= 1e-14);
    CHECK(testing::relative_error(sharded.state[1], replicated.state[1]) <= 1e-14);
    CHECK(sharded.state[1].gt(0).all().item<bool>());
  }
}

TEST_CASE("zero: all ranks hold the same bits after the gather") {
  const comm::MpiGroup ranks = testing::data_ranks(8);
  for (const int part : testing::part_sizes(ranks.size())) {
    const testing::DataAxis axis(ranks, part);
    comm::Communicator* const data = &axis.data();
    for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kLamb, OptimizerKind::kLars}) {
      Replica replica(axis, at::kFloat, options_of(kind));
      for (int step = 0; step < kSteps; ++step) {
        replica.step(step, 1.0);
      }
      const at::Tensor largest = replica.buffer.values().clone();
      const at::Tensor negated = -largest;
      data->all_reduce(largest, comm::ReduceOp::kMax).wait();
      data->all_reduce(negated, comm::ReduceOp::kMax).wait();
      CHECK(largest.equal(-negated));
    }
  }
}

TEST_CASE("zero: a skipped step changes nothing") {
  const comm::MpiGroup ranks = testing::data_ranks(8);
  const testing::DataAxis axis(ranks, ranks.size());
  Replica replica(axis, at::kFloat, OptimizerOptions{});
  replica.step(0, 1.0);
  const at::Tensor before = replica.buffer.values().clone();
  const int64_t version = replica.buffer.version();
  replica.step(1, 1.0, /*skip=*/true);
  CHECK(replica.buffer.values().equal(before));
  CHECK(replica.buffer.version() == version);
  CHECK(replica.optimizer.num_steps() == 1);
  replica.step(1, 1.0);
  CHECK_FALSE(replica.buffer.values().equal(before));
}

TEST_CASE("zero: padding and gaps stay zero") {
  const comm::MpiGroup ranks = testing::data_ranks(8);
  const testing::DataAxis axis(ranks, ranks.size());
  for (const OptimizerOptions& options : all_options()) {
    Replica replica(axis, at::kFloat, options);
    replica.step(0, 1.0);
    at::Tensor rest = replica.buffer.values().clone();
    for (const Range& slot : replica.buffer.layout().slots) {
      rest.narrow(0, slot.begin, slot.size()).zero_();
    }
    CHECK(rest.eq(0).all().item<bool>());
  }
}

TEST_CASE("zero: optimizer state over parts of d ranks is 4/d bytes a parameter and state in fp32, and the padding") {
  const MemoryTracker::Attachment attachment;
  OptimizerOptions plain = options_of(OptimizerKind::kSgd);
  plain.momentum = 0.0;
  const std::vector<std::pair<OptimizerOptions, int64_t>> bytes_by_options = {{options_of(OptimizerKind::kAdamW), 8},
                                                                              {options_of(OptimizerKind::kLamb), 8},
                                                                              {options_of(OptimizerKind::kSgd), 4},
                                                                              {options_of(OptimizerKind::kLars), 4},
                                                                              {plain, 0}};
  for (const int size : {1, 2, 4, 8}) {
    const comm::MpiGroup ranks = testing::data_ranks(size);
    for (const int part : testing::part_sizes(ranks.size())) {
      const testing::DataAxis axis(ranks, part);
      for (const auto& [options, bytes_each] : bytes_by_options) {
        const int64_t before = optimizer_bytes();
        const Replica replica(axis, at::kFloat, options, 1 << 20);
        int64_t parameters = 0;
        for (const auto& spec : replica.buffer.specs()) {
          parameters += tensor::num_elements(spec.local_shape);
        }
        const int64_t bytes = optimizer_bytes() - before;
        CHECK(bytes == bytes_each * replica.buffer.layout().size / part);
        // Of each parameter at most 15 elements are a gap, of the bucket at most 16 a rank.
        const int64_t padding = 15 * static_cast<int64_t>(optimized_specs().size()) + 16 * part;
        CHECK(bytes * part >= bytes_each * parameters);
        CHECK(bytes * part <= bytes_each * (parameters + padding));
      }
    }
  }
}
