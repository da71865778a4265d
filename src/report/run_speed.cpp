// RunSpeed: the measuring, and the sums over the ranks.
#include "src/report/run_speed.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "parallel/comm/failure.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/config/optimizer_options.h"
#include "src/machine/machine_roof.h"
#include "src/machine/peak_speed.h"
#include "src/machine/processor.h"

namespace vit_hybrid::train {

namespace {

// The steps of a run that was not made to be measured take at least so many times as long.
constexpr double kWorthIt = 20.0;

// Sum over the ranks, known where each rank knows its own.
Speed sum_of(const Speed& own, comm::Communicator& host_world) {
  const at::Tensor sums = at::tensor({own.flops.value_or(0.0), own.flops ? 1.0 : 0.0}, at::kDouble);
  host_world.all_reduce(sums, comm::ReduceOp::kSum).wait();
  const double* values = sums.const_data_ptr<double>();
  if (values[1] == static_cast<double>(host_world.size())) {
    return {values[0], {}};
  }
  return {std::nullopt, own.flops ? "it is not known of every rank" : own.missing};
}

Speed own_roof(const RunConfig& config, mesh::DeviceMesh& mesh) {
  const auto flops = measure_matmul_roof(mesh.device(), precision_policy(config).compute, kRoofSeconds,
                                         [&] { mesh.host_world().barrier().wait(); });
  return {flops, flops ? "" : "the GPU has no memory left for the product"};
}

Speed roof_of(const RunConfig& config, const FinishedRun& run, mesh::DeviceMesh& mesh) {
  if (run.was_interrupted) {
    return {std::nullopt, "the run was interrupted"};
  }
  if (!run.is_test && run.step_seconds < kWorthIt * kRoofSeconds) {
    return {std::nullopt, str("it is measured with --test, or after steps that took ", kWorthIt * kRoofSeconds,
                              " s; these took ", fixed_text(run.step_seconds, 2), " s")};
  }
  return sum_of(own_roof(config, mesh), mesh.host_world());
}

Speed processor_peak(const Processor& processor, at::ScalarType type, double cores) {
  const int each = flops_per_cycle(processor, type);
  if (each == 0) {
    return {std::nullopt, str("the units of the processor, ", processor.name, ", are not known here")};
  }
  if (processor.max_hertz == 0.0) {
    return {std::nullopt, "the system does not tell the processor's highest frequency"};
  }
  return {cores * each * processor.max_hertz, {}};
}

// Ranks that share cores, or a GPU, share its peak.
Speed own_peak(const RunConfig& config, c10::Device device) {
  if (device.is_cuda()) {
    const std::string name = survey_gpus().gpus.at(static_cast<size_t>(device.index())).name;
    const double flops = gpu_peak_flops(name, config.precision.kind);
    if (flops == 0.0) {
      return {std::nullopt,
              str("no data sheet of ", name, " is known here for ", precision_name(config.precision.kind))};
    }
    return {flops / config.parallel.ranks_per_gpu, {}};
  }
  const Processor& processor = this_processor();
  const double ranks = comm::process_place().node_size;
  const double cores = std::min<double>(at::get_num_threads(), processor.num_cores / ranks);
  return processor_peak(processor, precision_policy(config).compute, cores);
}

}  // namespace

RunSpeed measure_run_speed(const RunConfig& config, const FinishedRun& run, mesh::DeviceMesh& mesh) {
  const MemoryScope scope(MemoryClass::kCommunication);
  RunSpeed speed;
  speed.samples_per_second = run.samples_per_second;
  speed.model_flops = run.samples_per_second * model::train_flops_per_sample(config.model);
  speed.roof = believable_roof(roof_of(config, run, mesh), speed.model_flops);
  speed.peak = sum_of(own_peak(config, mesh.device()), mesh.host_world());
  return speed;
}

}  // namespace vit_hybrid::train
