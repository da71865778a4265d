// Training on GPUs against training on the host, on one rank and on a few.
#include <doctest/doctest.h>

#include "tests/support/gpu/host_comparison.h"
#include "tests/support/mpi_test.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// Those of this number of ranks; tests/parallel/mesh/test_device_mesh_gpu.cpp has the ones of eight.
std::vector<Layout> layouts() {
  const auto sharded = zero::ZeroStage::kOptimizerState;
  const auto replicated = zero::ZeroStage::kReplicated;
  const std::vector<Layout> all = {{1, 1, 1, sharded}, {2, 1, 1, sharded}, {2, 1, 1, replicated}, {1, 2, 1, sharded},
                                   {1, 1, 2, sharded}, {2, 2, 1, sharded}, {2, 1, 2, sharded},    {1, 2, 2, sharded}};
  std::vector<Layout> result;
  for (const Layout& layout : all) {
    if (layout.num_ranks() == world_size()) {
      result.push_back(layout);
    }
  }
  return result;
}

void compare_layouts_with_host(const Experiment& experiment, const Bounds& bounds) {
  for (const Layout& layout : layouts()) {
    compare_with_host(experiment, layout, bounds);
  }
}

}  // namespace

TEST_CASE("gpu training: fp64 losses, gradients and parameters are those of the host") {
  for (const model::VitOptions& model : {small_forecaster(), small_classifier(model::Pooling::kToken)}) {
    compare_layouts_with_host(gpu_experiment(model, "fp64"), {1e-11, 1e-10});
  }
}

TEST_CASE("gpu training: dropout, attention dropout and drop-path draw the masks of the host") {
  model::VitOptions model = small_forecaster();
  model.dropout = 0.1;
  model.attention_dropout = 0.1;
  model.drop_path = 0.2;
  compare_layouts_with_host(gpu_experiment(model, "fp64"), {1e-11, 1e-10});
}

TEST_CASE("gpu training: fp32 means no TF32: the first step is within fp32 rounding of the host") {
  Experiment first_step = gpu_experiment(small_forecaster(), "fp32");
  first_step.global_batches = {9};
  compare_layouts_with_host(first_step, {2e-4, std::nullopt});
}

TEST_CASE("gpu training: half precision in a layout errs little more than in one process") {
  for (const Layout& layout : layouts()) {
    compare_half_with_one_process(small_forecaster(), "fp16", layout);
    compare_half_with_one_process(small_forecaster(), "bf16", layout);
  }
}
