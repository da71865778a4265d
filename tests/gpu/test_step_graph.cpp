// CUDA graphs: a training whose micro-batches are replayed has the bits of one that starts its kernels one by one.
#include <doctest/doctest.h>

#include <utility>

#include "src/base/device_graph.h"
#include "tests/gpu/host_comparison.h"
#include "tests/gpu/kernel_scope.h"
#include "tests/gpu/own_gpu.h"
#include "tests/support/mpi_test.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// Two runs of the same kernels have the same bits only where those add in a fixed order.
constexpr tensor::DeviceKernelOptions kFixedOrder{tensor::Fp32Products::kExact, tensor::SumOrder::kFixed};

// In micro-batches of at most 3 samples; steps of another size stand between those of the same.
Experiment graph_experiment(const model::VitOptions& model, const char* precision) {
  Experiment experiment = gpu_experiment(model, precision);
  experiment.global_batches = {8, 8, 4, 8, 4, 7};
  return experiment;
}

void check_same_bits(Experiment experiment) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const TrainingOutcome plain = run(experiment, Layout{}, world, own_gpu());
  experiment.options.recorder = make_device_recorder();
  const TrainingOutcome recorded = run(experiment, Layout{}, world, own_gpu());
  CHECK(recorded.losses == plain.losses);
  CHECK(recorded.grad_norms == plain.grad_norms);
  const Errors errors = compare(recorded, plain, experiment.learning_rate);
  CAPTURE(errors.worst);
  CHECK(errors.gradient == 0.0);
  CHECK(errors.parameter == 0.0);
  CHECK(errors.state == 0.0);
}

}  // namespace

TEST_SUITE_BEGIN("one rank");

TEST_CASE("gpu step graph: recorded micro-batches give the bits of a training without") {
  const KernelScope scope(kFixedOrder);
  for (const char* precision : {"fp64", "fp32", "fp16"}) {
    CAPTURE(precision);
    check_same_bits(graph_experiment(small_forecaster(), precision));
    check_same_bits(graph_experiment(small_classifier(model::Pooling::kToken), precision));
  }
}

TEST_CASE("gpu step graph: with activations that backward computes again") {
  const KernelScope scope(kFixedOrder);
  for (const auto recompute : {model::Recompute::kSelective, model::Recompute::kFull}) {
    Experiment experiment = graph_experiment(small_forecaster(), "fp16");
    experiment.options.recompute = recompute;
    check_same_bits(experiment);
  }
}

TEST_CASE("gpu step graph: no memory is asked of the driver after the step that follows the recording") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const auto& [micro_batch_size, recording_step] : {std::pair{3, 1}, std::pair{6, 2}}) {
    Experiment experiment = gpu_experiment(small_forecaster(), "fp16");
    experiment.micro_batch_size = micro_batch_size;
    experiment.global_batches.assign(6, 6);
    experiment.options.recorder = make_device_recorder();
    Training training(experiment, Layout{}, world, own_gpu());
    training.run_steps(recording_step + 1);
    const int64_t before = device_allocations();
    training.run_steps();
    CAPTURE(micro_batch_size);
    CHECK(device_allocations() == before);
  }
}

TEST_SUITE_END();
