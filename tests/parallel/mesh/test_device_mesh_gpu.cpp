// The mesh 2 x 2 x 2, and two of 2 x 2, on GPUs, which the ranks may share: their numbers against those of one process
// on the host.
#include <doctest/doctest.h>

#include "tests/support/gpu/host_comparison.h"
#include "tests/support/gpu/own_gpu.h"
#include "tests/support/mpi_test.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

constexpr int kNumRanks = 8;

bool is_wanted(int num_ranks = kNumRanks) {
  if (world_size() != num_ranks) {
    MESSAGE("[skipped] the mesh takes " << num_ranks << " ranks, here are " << world_size());
  }
  return world_size() == num_ranks;
}

Layout mesh_2_2_2(zero::ZeroStage stage, const std::string& schedule) {
  Layout layout{2, 2, 2, stage};
  layout.schedule = schedule;
  return layout;
}

}  // namespace

TEST_CASE("gpu mesh: 2 x 2 x 2 in fp64 trains what one process on the host trains") {
  if (!is_wanted()) return;
  const Experiment experiment = gpu_experiment(small_forecaster(), "fp64");
  for (const char* schedule : {"1f1b", "gpipe"}) {
    compare_with_host(experiment, mesh_2_2_2(zero::ZeroStage::kOptimizerState, schedule), {1e-11, 1e-10});
  }
  compare_with_host(experiment, mesh_2_2_2(zero::ZeroStage::kReplicated, "1f1b"), {1e-11, 1e-10});
}

TEST_CASE("gpu mesh: 2 x 2 of four ranks in fp64 trains what one process on the host trains") {
  if (!is_wanted(4)) return;
  const Experiment experiment = gpu_experiment(small_forecaster(), "fp64");
  for (const Layout& layout : {Layout{1, 2, 2}, Layout{2, 2, 1}}) {
    compare_with_host(experiment, layout, {1e-11, 1e-10});
  }
}

TEST_CASE("gpu mesh: 2 x 2 x 2 with dropout draws the masks of one process on the host") {
  if (!is_wanted()) return;
  model::VitOptions model = small_classifier(model::Pooling::kToken);
  model.dropout = 0.1;
  model.attention_dropout = 0.1;
  model.drop_path = 0.2;
  compare_with_host(gpu_experiment(model, "fp64"), mesh_2_2_2(zero::ZeroStage::kOptimizerState, "1f1b"),
                    {1e-11, 1e-10});
}

TEST_CASE("gpu mesh: 2 x 2 x 2 in half precision errs no more than one process does") {
  if (!is_wanted()) return;
  const Layout layout = mesh_2_2_2(zero::ZeroStage::kOptimizerState, "1f1b");
  compare_half_with_one_process(small_forecaster(), "fp16", layout);
  compare_half_with_one_process(small_forecaster(), "bf16", layout);
}
