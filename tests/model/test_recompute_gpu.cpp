// Recompute on GPUs, where the autograd engine is entered again in a thread of its own: the numbers of the host.
#include <doctest/doctest.h>

#include "tests/support/gpu/host_comparison.h"
#include "tests/support/mpi_test.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

TEST_CASE("gpu recompute: fp64 losses, gradients and parameters are those of the host") {
  const Layout layout = world_size() == 1 ? Layout{1, 1, 1} : Layout{1, 2, 1};
  if (layout.num_ranks() != world_size()) {
    return;
  }
  model::VitOptions model = small_forecaster();
  model.dropout = 0.1;
  model.attention_dropout = 0.1;
  model.drop_path = 0.2;
  for (const auto recompute : {model::Recompute::kSelective, model::Recompute::kFull}) {
    Experiment experiment = gpu_experiment(model, "fp64");
    experiment.options.recompute = recompute;
    compare_with_host(experiment, layout, {1e-11, 1e-10});
  }
}
