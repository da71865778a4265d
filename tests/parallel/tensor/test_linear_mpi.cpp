// The tensor-parallel model against the reference of one process, for degrees that divide nothing.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include "model/recompute.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/tensor/linear.h"
#include "src/base/error.h"
#include "tests/support/compare.h"
#include "tests/support/mpi_test.h"
#include "tests/support/statistics.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using model::VitOptions;

namespace {

constexpr int64_t kSamples = 3;
constexpr auto kTanh = kernels::GeluKind::kTanh;
constexpr double kDoubleBound = 1e-13;  // a few hundred roundings in a row

// Runs `check` on the first `degree` ranks of the world as a tensor group, for every degree that fits.
template <class Check>
void for_each_degree(Check check) {
  for (const int degree : {1, 2, 3, 4, 8}) {
    if (degree > world_size()) {
      continue;
    }
    const bool member = world_rank() < degree;
    auto ranks = comm::MpiGroup::world().split(member ? 0 : 1);
    const auto group = comm::make_communicator("tensor", std::move(ranks), at::kCPU);
    if (member) {
      INFO("tensor degree ", degree);
      check(*group);
    }
  }
}

std::vector<VitOptions> all_models() {
  return {small_forecaster(), with_tanh(small_forecaster()), small_classifier(model::Pooling::kToken),
          small_classifier(model::Pooling::kMean)};
}

struct Case {
  explicit Case(const VitOptions& chosen)
      : options(chosen),
        parameters(test_parameters(chosen)),
        images(test_images(chosen, kSamples)),
        output_gradient(normal_tensor(output_shape(chosen, kSamples), 12)),
        context(test_context(kSamples, Mode::kTraining)) {}

  Outcome ours(at::ScalarType type, comm::Communicator& group) const {
    return run_ours(options, parameters, images, output_gradient, context, type, group);
  }
  Outcome reference(at::ScalarType type) const {
    return run_reference(options, parameters, images, output_gradient, context, type);
  }

  VitOptions options;
  NamedTensors parameters;
  at::Tensor images;
  at::Tensor output_gradient;
  tensor::StepContext context;
};

void check_close(const Outcome& ours, const Outcome& reference, double output_bound, double gradient_bound) {
  CHECK(relative_error(ours.output, reference.output) <= output_bound);
  const WorstError worst = worst_gradient_error(ours.gradients, reference.gradients);
  CAPTURE(worst.name);
  CHECK(worst.error <= gradient_bound);
}

// Every rank's bits are those of rank 0.
bool same_on_all_ranks(const at::Tensor& x, comm::Communicator& group) {
  at::Tensor of_first = x.clone();
  group.broadcast(of_first, 0).wait();
  return of_first.equal(x);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>();
}

int64_t num_all_reduces() {
  return testing::statistics_of("tensor").count(comm::Operation::kAllReduce).operations;
}

}  // namespace

TEST_CASE("tensor_parallel: outputs and every weight gradient are the reference's in fp64") {
  for_each_degree([](comm::Communicator& group) {
    for (const auto& options : all_models()) {
      const Case given(options);
      check_close(given.ours(at::kDouble, group), given.reference(at::kDouble), kDoubleBound, kDoubleBound);
    }
  });
}

TEST_CASE("tensor_parallel: fp32 is as near to fp64 as the reference's fp32") {
  constexpr double kFactor = 4.0;  // another order of the same sums
  for_each_degree([](comm::Communicator& group) {
    const Case given(small_forecaster());
    const Outcome exact = given.reference(at::kDouble);
    const Outcome single = given.reference(at::kFloat);
    check_close(given.ours(at::kFloat, group), exact, kFactor * relative_error(single.output, exact.output),
                kFactor * worst_gradient_error(single.gradients, exact.gradients).error);
  });
}

TEST_CASE("tensor_parallel: dropout of all kinds is the same function at every degree") {
  for_each_degree([](comm::Communicator& group) {
    for (VitOptions options : all_models()) {
      options.dropout = 0.2;
      options.attention_dropout = 0.3;
      options.drop_path = 0.4;
      const Case given(options);
      check_close(given.ours(at::kDouble, group), given.reference(at::kDouble), kDoubleBound, kDoubleBound);
    }
  });
}

// What runs where GELU's backward is the end of fc2's product: the layers' wiring, by the kernels of the host.
TEST_CASE("tensor_parallel: GELU's backward in fc2 gives the same gradients, also where its input is recomputed") {
  for_each_degree([&](comm::Communicator& group) {
    const VitOptions options = with_tanh(small_forecaster());
    const auto parameters = test_parameters(options);
    const auto context = test_context(kSamples, Mode::kTraining);
    const at::Tensor x = normal_tensor({kSamples, 5, options.embed_dim}, 21);
    const auto run = [&](const auto& forward) {
      TestStage stage(options, {1, 2}, parameters, at::kDouble, group);
      tensor::ColumnParallelLinear fc1(stage.buffer, "blocks.0.mlp.fc1", tensor::Terms::kWeightAndBias, group);
      tensor::RowParallelLinear fc2(stage.buffer, "blocks.0.mlp.fc2", tensor::Terms::kWeightAndBias, group);
      CHECK_FALSE(fc2.fuses_gelu_backward(x.size(0) * x.size(1), kTanh));  // the host has no such kernel
      const at::Tensor input = x.clone().requires_grad_();
      const at::Tensor y = forward(fc1, fc2, input);
      torch::autograd::backward({y}, {normal_tensor(y.sizes(), 22)});
      NamedTensors result = stage.gradients(group);
      result["y"] = y.detach();
      result["dx"] = input.grad();
      return result;
    };
    const auto own = run([&](auto& fc1, auto& fc2, const at::Tensor& input) {
      return fc2.forward(fc1.forward_gelu(input, kTanh, context, tensor::Keep::kPreActivation), context).finish();
    });
    const auto in_fc2 = run([&](auto& fc1, auto& fc2, const at::Tensor& input) {
      return fc2.forward_of_gelu(fc1.forward_beside_gelu(input, kTanh, context), kTanh, context).finish();
    });
    const auto recomputed = run([&](auto& fc1, auto& fc2, const at::Tensor& input) {
      const tensor::PreActivation hidden = fc1.forward_beside_gelu(input, kTanh, context);
      const at::Tensor y = fc2.forward_of_gelu(hidden, kTanh, context).finish();
      return model::recompute_in_backward(hidden.z, y, [&fc1, input] { return fc1.pre_activation(input, kTanh); });
    });
    REQUIRE(in_fc2.size() == own.size());
    for (const auto& [name, expected] : own) {
      CAPTURE(name);
      const double largest = expected.abs().max().item<double>();
      CHECK((largest > 0.0) == (name.find("mlp") != std::string::npos || name == "y" || name == "dx"));
      CHECK(largest_difference(in_fc2.at(name), expected) <= kDoubleBound * (1.0 + largest));
      CHECK(recomputed.at(name).equal(in_fc2.at(name)));
    }
  });
}

TEST_CASE("tensor_parallel: gradients of replicated parameters are the same bits on all ranks") {
  for_each_degree([](comm::Communicator& group) {
    for (VitOptions options : all_models()) {
      options.dropout = 0.2;
      const Case given(options);
      TestStage ours(options, {0, options.num_units()}, given.parameters, at::kFloat, group);
      const at::Tensor images = given.images.to(at::kFloat).requires_grad_();
      const at::Tensor output = ours.stage.forward(images, given.context);
      torch::autograd::backward({output}, {given.output_gradient.to(at::kFloat)});
      CHECK(same_on_all_ranks(output.detach(), group));
      for (const auto& spec : ours.buffer.specs()) {
        CAPTURE(spec.name);
        CHECK((!spec.replicated_over_tensor || same_on_all_ranks(ours.buffer.parameter(spec.name).gradient, group)));
      }
    }
  });
}

TEST_CASE("tensor_parallel: two all-reduces a block forward, two backward, and no more") {
  for_each_degree([](comm::Communicator& group) {
    VitOptions options = small_forecaster();
    options.depth = 3;
    const Case given(options);
    TestStage ours(options, {0, options.num_units()}, given.parameters, at::kFloat, group);
    const at::Tensor images = given.images.to(at::kFloat).requires_grad_();

    const int64_t before = num_all_reduces();
    const at::Tensor output = ours.stage.forward(images, given.context);
    const int64_t after_forward = num_all_reduces();
    torch::autograd::backward({output}, {given.output_gradient.to(at::kFloat)});
    const int64_t after_backward = num_all_reduces();
    CHECK(after_forward - before == 2 * options.depth);
    CHECK(after_backward - after_forward == 2 * options.depth);
  });
}

// The sum of a copy would leave each rank with its own part, unnoticed.
TEST_CASE("tensor_parallel: the sum of a region reaches the tensor itself, and refuses one that is not contiguous") {
  for_each_degree([](comm::Communicator& group) {
    const at::Tensor partial = at::full({3, 4}, static_cast<double>(group.rank() + 1), at::kFloat);
    tensor::start_region_sum(partial, group).wait();
    CHECK(partial.eq(group.size() * (group.size() + 1) / 2).all().item<bool>());
    CHECK_THROWS_AS(tensor::start_region_sum(partial.t(), group).wait(), Error);
  });
}

TEST_CASE("tensor_parallel: a rank without samples takes part in every reduction") {
  for_each_degree([](comm::Communicator& group) {
    const VitOptions options = small_forecaster();
    const Case given(options);
    const Outcome empty =
        run_ours(options, given.parameters, given.images.narrow(0, 0, 0), given.output_gradient.narrow(0, 0, 0),
                 test_context(0, Mode::kTraining), at::kFloat, group);
    CHECK(empty.output.sizes() == at::IntArrayRef(output_shape(options, 0)));
  });
}
