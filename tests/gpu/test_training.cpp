// Training on GPUs against training on the host: the same engine, layouts and data.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <doctest/doctest.h>

#include <optional>

#include "tests/support/mpi_test.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// Ranks share the GPUs of the machine in turn. NCCL allows it where each rank has an NCCL_HOSTID of its own, which
// launch/pack's `run` sets.
c10::Device gpu_of_rank(int rank) {
  const auto gpus = static_cast<int>(at::detail::getCUDAHooks().deviceCount());
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(rank % gpus)};
}

std::vector<Layout> layouts(int num_ranks) {
  const auto sharded = zero::ZeroStage::kOptimizerState;
  const auto replicated = zero::ZeroStage::kReplicated;
  const std::vector<Layout> all = {{1, 1, 1, sharded}, {2, 1, 1, sharded}, {2, 1, 1, replicated}, {1, 2, 1, sharded},
                                   {1, 1, 2, sharded}, {2, 2, 1, sharded}, {2, 1, 2, sharded},    {1, 2, 2, sharded}};
  std::vector<Layout> result;
  for (const Layout& layout : all) {
    if (layout.num_ranks() == num_ranks) {
      result.push_back(layout);
    }
  }
  return result;
}

Experiment experiment(model::VitOptions model, const char* precision) {
  Experiment result;
  result.options.model = model;
  result.options.precision = zero::make_precision_policy(precision);
  result.options.bucket_bytes = 8 << 10;
  result.options.clip_norm = 0.5;
  result.global_batches = {9, 4, 1};
  return result;
}

struct Bounds {
  double gradient;
  std::optional<double> parameter;  // none where Adam magnifies rounding
};

void compare_with_host(const Experiment& experiment, const Bounds& bounds) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const TrainingOutcome host = run(experiment, Layout{}, world.split(world.rank()));
  for (const Layout& layout : layouts(world.size())) {
    CAPTURE(layout.text());
    const TrainingOutcome device = run(experiment, layout, world, gpu_of_rank(world.rank()));
    const Errors errors = compare(device, host, experiment.learning_rate);
    CAPTURE(errors.worst);
    CHECK(errors.loss <= bounds.gradient);
    CHECK(errors.gradient <= bounds.gradient);
    if (bounds.parameter) {
      CHECK(errors.parameter <= *bounds.parameter);
    }
  }
}

}  // namespace

TEST_CASE("gpu training: fp64 losses, gradients and parameters are those of the host") {
  for (const model::VitOptions& model : {small_forecaster(), small_classifier(model::Pooling::kToken)}) {
    compare_with_host(experiment(model, "fp64"), {1e-11, 1e-10});
  }
}

TEST_CASE("gpu training: dropout, attention dropout and drop-path draw the masks of the host") {
  model::VitOptions model = small_forecaster();
  model.dropout = 0.1;
  model.attention_dropout = 0.1;
  model.drop_path = 0.2;
  compare_with_host(experiment(model, "fp64"), {1e-11, 1e-10});
}

TEST_CASE("gpu training: fp32 means no TF32: the first step is within fp32 rounding of the host") {
  Experiment first_step = experiment(small_forecaster(), "fp32");
  first_step.global_batches = {9};
  compare_with_host(first_step, {2e-4, std::nullopt});
}
