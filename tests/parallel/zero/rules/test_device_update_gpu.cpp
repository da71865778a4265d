// The optimizer's and the input's kernels on a GPU against ATen operations in fp64, on the same device.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "data/loading/normalize.h"
#include "parallel/comm/communicator_base.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/zero/norms.h"
#include "parallel/zero/rules/device_update.h"
#include "parallel/zero/zero1_optimizer.h"
#include "tests/support/compare.h"
#include "tests/support/gpu/own_gpu.h"
#include "tests/support/optimizer_step.h"
#include "tests/support/textbook_optimizer.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using namespace vit_hybrid::zero;

namespace {

at::TensorOptions on_gpu(at::ScalarType type) {
  static const c10::Device device = own_gpu();
  return at::TensorOptions(type).device(device);
}

// Rank `rank` of a data axis whose other ranks do not exist: what they own stays as it is.
class LoneRank final : public comm::CommunicatorBase {
 public:
  LoneRank(int rank, int size) : CommunicatorBase("data", rank, size, on_gpu(at::kFloat).device().type(), nullptr) {}
  std::string back_end() const override { return "none"; }

 private:
  Started start_all_reduce(const at::Tensor& /*tensor*/, comm::ReduceOp /*op*/,
                           const comm::Work::State* /*first*/) override {
    return nullptr;
  }
  Started start_reduce_scatter(const at::Tensor& /*output*/, const at::Tensor& /*input*/,
                               comm::ReduceOp /*op*/) override {
    return nullptr;
  }
  Started start_all_gather(const at::Tensor& /*output*/, const at::Tensor& /*input*/) override { return nullptr; }
  Started start_broadcast(const at::Tensor& /*tensor*/, int /*root*/) override { return nullptr; }
  Started start_exchange(std::vector<comm::Transfer> /*transfers*/) override { return nullptr; }
  Started start_barrier() override { return nullptr; }
};

// Matrices and vectors in turn, of odd sizes, and one that takes many blocks.
std::vector<tensor::ParameterSpec> specs() {
  const tensor::Distribution normal{tensor::Distribution::Kind::kTruncatedNormal, 0.5, 2.0};
  const auto matrix = tensor::DecayGroup::kMatrix, vector = tensor::DecayGroup::kVector;
  return {tensor::replicated("positions", {1, 15, 37}, normal, vector),
          tensor::replicated("a.weight", {37, 29}, normal, matrix),
          tensor::replicated("a.bias", {37}, normal, vector),
          tensor::replicated("scale", {1}, normal, vector),
          tensor::replicated("b.weight", {301, 37}, normal, matrix),
          tensor::replicated("b.bias", {301}, normal, vector),
          tensor::replicated("c.weight", {211, 301}, normal, matrix),
          tensor::replicated("d.weight", {3, 211}, normal, matrix),
          tensor::replicated("d.bias", {3}, normal, vector)};
}

// The data rank `rank` of `size` with an optimizer, and a textbook's optimizer for each piece that it owns.
class Owner {
 public:
  Owner(const PrecisionPolicy& precision, OptimizerKind kind, ZeroStage stage, int rank, int size)
      : options_(options_of(kind)),
        data_(rank, size),
        tensor_(0, 1),
        buffer_(specs(), tensor::make_flat_layout(specs(), 3000, state_groups(data_, stage).num_shards()),
                precision.compute, precision.gradient, on_gpu(at::kFloat).device()),
        optimizer_(buffer_, state_groups(data_, stage), tensor_, precision, options_),
        control_(buffer_.values().device()) {
    tensor::initialize(buffer_.specs(), optimizer_, 1);
    for (const OwnedState& owned : optimizer_.owned_state()) {
      const auto& spec = buffer_.specs()[static_cast<size_t>(owned.parameter)];
      expected_.emplace_back(options_, owned.master, spec.decay == tensor::DecayGroup::kMatrix);
    }
    start_ = buffer_.values().clone();
  }

  void step(double lr, double scale) {
    for (int i = 0; i < static_cast<int>(buffer_.specs().size()); ++i) {
      const at::Tensor& gradient = buffer_.parameter(i).gradient;
      gradient.copy_(at::randn(gradient.sizes(), on_gpu(at::kDouble)));
    }
    const auto owned = optimizer_.owned_state();
    for (size_t i = 0; i < owned.size(); ++i) {
      const at::Tensor& gradient = buffer_.parameter(owned[i].parameter).gradient;
      expected_[i].step(part(gradient, owned[i].range).to(at::kDouble) * scale, lr);
    }
    testing::step(optimizer_, control_, lr, scale);
  }

  void skip_step(double lr) {
    for (int i = 0; i < static_cast<int>(specs().size()); ++i) {
      buffer_.parameter(i).gradient.fill_(std::numeric_limits<double>::infinity());
    }
    testing::step(optimizer_, control_, lr, 1.0, /*skip=*/true);
  }

  // Weights and moments are the textbook's, parameters the cast weights; nothing else has changed.
  void check(double bound) const {
    std::vector<at::Tensor> weights, means, squares, their_weights, their_means, their_squares;
    const at::Tensor others = buffer_.values().clone();
    const auto owned = optimizer_.owned_state();
    for (size_t i = 0; i < owned.size(); ++i) {
      const at::Tensor parameter = part(buffer_.parameter(owned[i].parameter).value, owned[i].range);
      CHECK(parameter.equal(owned[i].master.to(parameter.scalar_type())));
      weights.push_back(owned[i].master);
      means.push_back(owned[i].state[0]);
      squares.push_back(owned[i].state[1]);
      their_weights.push_back(expected_[i].weights());
      their_means.push_back(expected_[i].states().at("exp_avg"));
      their_squares.push_back(expected_[i].states().at("exp_avg_sq"));
      const int64_t begin = buffer_.layout().slots[static_cast<size_t>(owned[i].parameter)].begin;
      const Range range{begin + owned[i].range.begin, begin + owned[i].range.end};
      part(others, range).copy_(part(start_, range));
    }
    CHECK(relative_error(at::cat(weights), at::cat(their_weights)) <= bound);
    CHECK(relative_error(at::cat(means), at::cat(their_means)) <= bound);
    CHECK(relative_error(at::cat(squares), at::cat(their_squares)) <= bound);
    CHECK(others.equal(start_));
  }

 private:
  static OptimizerOptions options_of(OptimizerKind kind) {
    OptimizerOptions options;
    options.kind = kind;
    options.weight_decay = 0.1;
    options.eps = 1e-3;  // Adam's first steps magnify the rounding of gradients that are smaller
    return options;
  }

  static at::Tensor part(const at::Tensor& values, const Range& range) {
    return values.view(-1).narrow(0, range.begin, range.size());
  }

  OptimizerOptions options_;
  LoneRank data_, tensor_;
  tensor::ParameterBuffer buffer_;
  Zero1Optimizer optimizer_;
  StepControl control_;
  std::vector<TextbookOptimizer> expected_;
  at::Tensor start_;
};

// Every precision, with gradients that are added up in fp32 and in half.
std::vector<PrecisionPolicy> all_policies() {
  std::vector<PrecisionPolicy> all;
  for (const char* name : {"fp64", "fp32", "bf16", "fp16"}) {
    all.push_back(make_precision_policy(name));
    if (all.back().has_own_master()) {
      all.push_back(all.back());
      all.back().gradient = all.back().compute;
    }
  }
  return all;
}

void check_adam(const PrecisionPolicy& precision, ZeroStage stage, int rank, int size) {
  CAPTURE(rank);
  CAPTURE(size);
  for (const auto kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    Owner owner(precision, kind, stage, rank, size);
    for (int number = 1; number <= 3; ++number) {
      owner.step(0.01 / number, 0.25);
      owner.skip_step(0.01);
    }
    owner.check(precision.master == at::kDouble ? 1e-13 : 1e-6);
  }
}

}  // namespace

TEST_SUITE_BEGIN("one rank");

TEST_CASE("gpu kernels: Adam's step over all that a rank owns is that of fp64, for every type, wherever it lies") {
  for (const PrecisionPolicy& precision : all_policies()) {
    CAPTURE(c10::toString(precision.compute));
    CAPTURE(c10::toString(precision.gradient));
    check_adam(precision, ZeroStage::kReplicated, 0, 2);
    for (const int size : {1, 2, 5}) {
      for (int rank = 0; rank < size; ++rank) {
        check_adam(precision, ZeroStage::kOptimizerState, rank, size);
      }
    }
  }
}

TEST_CASE("gpu kernels: what a step decides has the bits of the host") {
  StepControl control(on_gpu(at::kDouble).device());
  StepScalars step = scalars_of_step(OptimizerOptions{}, 3, 0.01);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double loss_scale : {1.0, 3.0, 65536.0}) {
    for (const double max_norm : {0.0, 0.7, 1e9}) {
      for (const double squares : {0.0, 0.1, 12345.678, infinity, std::numeric_limits<double>::quiet_NaN()}) {
        for (const double not_finite : {0.0, 1.0}) {
          step.loss_scale = loss_scale;
          step.max_norm = max_norm;
          step.squares = squares;
          step.not_finite = not_finite;
          StepScalars host = step;
          decide(host);
          control.set(step);
          control.decide();
          const StepScalars there = control.read();
          CHECK(there.lr == step.lr);
          CHECK(there.is_skipped() == host.is_skipped());
          CHECK((there.norm == host.norm || host.is_skipped()));
          CHECK(there.gradient_scale == host.gradient_scale);
        }
      }
    }
  }
}

TEST_CASE("gpu kernels: the norm of gradients on a GPU is that of the host, of what is not finite too") {
  comm::SelfCommunicator world("world", on_gpu(at::kFloat).device().type());
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    constexpr int kShards = 3;
    const auto layout = tensor::make_flat_layout(specs(), 3000, kShards);
    tensor::ParameterBuffer buffer(specs(), layout, at::kFloat, type, on_gpu(type).device());
    StepControl control(buffer.values().device());
    const at::Tensor sums = at::zeros({2}, on_gpu(at::kDouble));
    for (const bool finite : {true, false, true}) {
      double squares = 0.0;
      for (int i = 0; i < static_cast<int>(specs().size()); ++i) {
        const at::Tensor gradient = buffer.parameter(i).gradient.normal_();
        squares += gradient.to(at::kDouble).square().sum().item<double>();
      }
      if (!finite) {
        buffer.parameter(4).gradient.select(0, 300).fill_(std::numeric_limits<double>::quiet_NaN());
      }
      sums.zero_();
      for (int rank = 0; rank < kShards; ++rank) {  // each has many ranges
        GradientNorm(buffer, {rank, 0}, 0, world).sum_into(control.sums());
        sums.add_(control.sums());
      }
      control.set({});
      control.sums().copy_(sums);
      control.decide();
      const StepScalars step = control.read();
      CHECK(step.is_skipped() == !finite);
      CHECK((!finite || std::abs(step.norm - std::sqrt(squares)) <= 1e-12 * step.norm));
    }
  }
}

TEST_CASE("gpu kernels: sums of squares count finite values and those that are not, with the same bits each time") {
  const at::Tensor workspace = at::empty({kSumOfSquaresWorkspace}, on_gpu(at::kDouble));
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t count : {int64_t{1}, int64_t{12347}, int64_t{5} << 20}) {
      const at::Tensor values = at::randn({count}, on_gpu(at::kDouble)).to(type);
      values.narrow(0, count / 2, 1).fill_(std::numeric_limits<double>::infinity());
      const at::Tensor finite =
          at::where(values.isfinite(), values.to(at::kDouble), at::zeros({}, on_gpu(at::kDouble)));
      const at::Tensor sums = at::zeros({2}, on_gpu(at::kDouble)), again = at::zeros_like(sums);
      const CountedTable all = {{}, counted_range(0, 0, count, 16 / static_cast<int64_t>(values.element_size()))};
      sum_of_squares_cuda(values, all, workspace, sums);
      sum_of_squares_cuda(values, all, workspace, again);
      CHECK(sums.equal(again));
      CHECK(relative_error(sums[0], finite.square().sum()) <= 1e-12);
      CHECK(sums[1].item<double>() == 1.0);
    }
  }
}

namespace {

// The same values from an address on that is no multiple of a vector's length.
at::Tensor at_odd_address(const at::Tensor& values) {
  return at::empty({values.numel() + 1}, values.options()).narrow(0, 1, values.numel()).view_as(values).copy_(values);
}

}  // namespace

TEST_CASE("gpu kernels: normalized batches have the bits of the host") {
  const at::Tensor mean = at::randn({3}, on_gpu(at::kFloat)), std = at::randn({3}, on_gpu(at::kFloat)).abs() + 0.5;
  for (const int64_t width : {7, 224}) {
    const at::Tensor fields = at::randn({5, 3, 33, width}, on_gpu(at::kFloat));
    const at::Tensor images = at::randint(0, 256, {5, 33, width, 3}, on_gpu(at::kByte));
    for (const at::Tensor& batch : {fields, images, at_odd_address(fields), at_odd_address(images)}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        const at::Tensor there = data::normalize_batch(batch, mean, std, type);
        CHECK(there.cpu().equal(data::normalize_batch(batch.cpu(), mean.cpu(), std.cpu(), type)));
      }
    }
  }
}

TEST_SUITE_END();
