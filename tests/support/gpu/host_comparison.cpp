// Trainings on GPUs and on the host, compared.
#include "tests/support/gpu/host_comparison.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <doctest/doctest.h>

#include "parallel/comm/mpi/mpi_group.h"
#include "tests/support/gpu/own_gpu.h"

namespace vit_hybrid::testing {

namespace {

// Of errors in a layout over those in one process.
constexpr double kHalfFactor = 3.0;

}  // namespace

Experiment gpu_experiment(const model::VitOptions& model, const std::string& precision) {
  Experiment result;
  result.options.model = model;
  result.options.precision = zero::make_precision_policy(precision);
  result.options.loss_scale = zero::loss_scale_options(precision == "fp16", /*fixed=*/1024.0);
  result.options.bucket_bytes = 8 << 10;
  result.options.clip_norm = 0.5;
  result.global_batches = {9, 4, 1};
  result.transport = gpu_transport();
  return result;
}

void compare_with_host(const Experiment& experiment, const Layout& layout, const Bounds& bounds) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const c10::Device gpu = own_gpu();
  const TrainingOutcome host = run(experiment, Layout{}, world.split(world.rank()));
  const TrainingOutcome device = run(experiment, layout, world, gpu);
  const Errors errors = compare(device, host, experiment.learning_rate);
  CAPTURE(layout.text());
  CAPTURE(errors.worst);
  CHECK(errors.loss <= bounds.gradient);
  CHECK(errors.gradient <= bounds.gradient);
  if (bounds.parameter) {
    CHECK(errors.parameter <= *bounds.parameter);
  }
}

void compare_half_with_one_process(const model::VitOptions& model, const std::string& precision, const Layout& layout) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const c10::Device gpu = own_gpu();
  if (precision == "bf16" && at::cuda::getDeviceProperties(gpu.index())->major < 8) {
    MESSAGE("[skipped] bf16: this GPU has none");
    return;
  }
  Experiment exact = gpu_experiment(model, "fp64");
  Experiment half = gpu_experiment(model, precision);
  exact.global_batches = half.global_batches = {9};  // Adam would magnify the rounding of the first step in the next
  const TrainingOutcome reference = run(exact, Layout{}, world.split(world.rank()));
  const Errors one = compare(run(half, Layout{}, world.split(world.rank()), gpu), reference, exact.learning_rate);
  const Errors many = compare(run(half, layout, world, gpu), reference, exact.learning_rate);
  CAPTURE(layout.text());
  CAPTURE(many.worst);
  CHECK(one.gradient > 1e-5);  // it is half precision
  CHECK(one.gradient < 0.2);
  CHECK(many.gradient <= kHalfFactor * one.gradient);
  CHECK(many.norm <= kHalfFactor * one.gradient);
  CHECK(many.loss <= kHalfFactor * one.gradient);
}

}  // namespace vit_hybrid::testing
