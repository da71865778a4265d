// CUDA graphs: a training whose steps are replayed has the bits of one that starts its kernels one by one.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "src/base/device/device_graph.h"
#include "tests/support/gpu/host_comparison.h"
#include "tests/support/gpu/kernel_scope.h"
#include "tests/support/gpu/own_gpu.h"
#include "tests/support/mpi_test.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// Two runs of the same kernels have the same bits only where those add in a fixed order.
constexpr kernels::DeviceKernelOptions kFixedOrder{kernels::Fp32Products::kExact, kernels::SumOrder::kFixed};

// In micro-batches of at most 3 samples; steps of another size stand between those of the same.
Experiment graph_experiment(const model::VitOptions& model, const char* precision) {
  Experiment experiment = gpu_experiment(model, precision);
  experiment.global_batches = {8, 8, 4, 8, 4, 7};
  experiment.learning_rate_factor = 0.7;
  return experiment;
}

// Has the host wait for the device at the end of the work, which no recording allows.
class WaitingRecorder final : public DeviceRecorder {
 public:
  WaitingRecorder() : DeviceRecorder(Unrecordable::kDonePlainly) {}
  void make_room() override { recorder_->make_room(); }

 private:
  std::unique_ptr<DeviceGraph> try_to_record(const std::function<void()>& work) override {
    return recorder_->record([&] {
      work();
      static_cast<void>(one_.item<float>());
    });
  }

  std::unique_ptr<DeviceRecorder> recorder_ = make_device_recorder(Unrecordable::kRefused);
  at::Tensor one_ = at::ones({1}, at::TensorOptions(at::kFloat).device(own_gpu()));
};

void record_steps(Experiment& experiment, const Layout& layout = {}) {
  experiment.options.recorder = make_device_recorder(Unrecordable::kRefused);
  if (layout.num_ranks() == 1) experiment.options.update_recorder = make_device_recorder(Unrecordable::kRefused);
}

void check_same_bits(Experiment experiment, const Layout& layout = {}) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  experiment.transport = gpu_transport();
  OperationCounts counts;
  const TrainingOutcome plain = run(experiment, layout, world, own_gpu());
  const auto plain_counts = counts.of_last_part();
  record_steps(experiment, layout);
  const TrainingOutcome recorded = run(experiment, layout, world, own_gpu());
  CHECK(counts.of_last_part() == plain_counts);
  CHECK(recorded.losses == plain.losses);
  CHECK(recorded.grad_norms == plain.grad_norms);
  const Errors errors = compare(recorded, plain, experiment.learning_rate);
  CAPTURE(errors.worst);
  CHECK(errors.gradient == 0.0);
  CHECK(errors.parameter == 0.0);
  CHECK(errors.state == 0.0);
}

// Six steps, that after `whole_steps` with a weight from which nothing finite comes.
TrainingOutcome run_with_overflow(const Experiment& experiment, int64_t whole_steps) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  Training training(experiment, Layout{}, world, own_gpu());
  training.run_steps(whole_steps);
  const auto before = training.checksums();
  tensor::ParameterBuffer& parameters = training.engine().parameters();
  const at::Tensor kept = parameters.parameter(0).value.clone();
  parameters.write(0, [](const at::Tensor& values) {
    values.flatten().narrow(0, 0, 1).fill_(std::numeric_limits<float>::infinity());
  });
  training.run_steps(1);
  parameters.write(0, [&](const at::Tensor& values) { values.copy_(kept); });
  CHECK(training.checksums() == before);
  training.run_steps();
  CHECK(training.engine().optimizer().num_steps() == 5);
  return training.outcome();
}

}  // namespace

// Each rank with a GPU of its own: graphs of ranks that share one would wait for each other there.
TEST_CASE("gpu step graph: recorded sums of tensor ranks give the bits, and the counts, of a training without") {
  const c10::Device device = own_gpu();
  if (world_size() == 1 || world_size() > at::detail::getCUDAHooks().deviceCount()) {
    MESSAGE("skipped: it needs a GPU for each of several ranks, and has ", device.str());
    return;
  }
  const KernelScope scope(kFixedOrder);
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int parts : {1, 2}) {
      CAPTURE(precision);
      CAPTURE(parts);
      Experiment experiment = graph_experiment(small_forecaster(), precision);
      experiment.options.micro_batch_parts = parts;
      if (world_size() == 2) check_same_bits(experiment, {.tp = 2});
      if (world_size() != 4) continue;
      experiment.global_batches = {30, 12, 30};  // five micro-batches of a replica, of which three are recorded
      check_same_bits(experiment, {.dp = 2, .tp = 2});
    }
  }
}

TEST_SUITE_BEGIN("one rank");

TEST_CASE("gpu step graph: recorded steps give the bits of a training without") {
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

TEST_CASE("gpu step graph: a replayed update takes the scale of its step, and skips the one that overflows") {
  const KernelScope scope(kFixedOrder);
  // The second step is the one in which norm and update are recorded.
  for (const auto& [kind, whole_steps] :
       {std::pair{zero::OptimizerKind::kAdam, int64_t{1}}, std::pair{zero::OptimizerKind::kAdamW, int64_t{3}}}) {
    Experiment experiment = graph_experiment(small_forecaster(), "fp16");
    experiment.options.optimizer.kind = kind;
    experiment.options.optimizer.weight_decay = 0.1;
    experiment.options.loss_scale = zero::loss_scale_options(/*is_fp16=*/true, /*fixed=*/0.0);
    experiment.options.loss_scale.growth_interval = 1;
    const TrainingOutcome plain = run_with_overflow(experiment, whole_steps);
    record_steps(experiment);
    const TrainingOutcome recorded = run_with_overflow(experiment, whole_steps);
    for (int64_t step = 0; step < 6; ++step) {
      const auto index = static_cast<size_t>(step);
      CAPTURE(step);
      CHECK(recorded.skipped[index] == (step == whole_steps));
      CHECK((step == whole_steps || recorded.losses[index] == plain.losses[index]));
      CHECK((step == whole_steps || recorded.grad_norms[index] == plain.grad_norms[index]));
    }
    CHECK(recorded.loss_scales == plain.loss_scales);
    for (const auto& [name, parameter] : plain.parameters) {
      CAPTURE(name);
      CHECK(recorded.parameters.at(name).equal(parameter));
      CHECK(recorded.states.at("exp_avg_sq").at(name).equal(plain.states.at("exp_avg_sq").at(name)));
    }
  }
}

// What the start of a run does after its recordings, and the measuring of products: draw.
TEST_CASE("gpu step graph: work that waits for the device is not recorded, and leaves no trace") {
  const KernelScope scope(kFixedOrder);
  const c10::Device device = own_gpu();
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor x = at::ones({1000}, options);
  const auto draws = [&] {
    auto generator = at::globalContext().defaultGenerator(device);
    generator.set_current_seed(7);
    return at::randn({1000}, options);
  };
  const at::Tensor before = draws();
  const auto recorder = make_device_recorder(Unrecordable::kDonePlainly);
  at::Tensor sum;
  CHECK(recorder->record([&] {
    sum = x.add(1.0).sum();
    static_cast<void>(sum.item<float>());  // throws, through record(): a CHECK would catch it
  }) == nullptr);
  CHECK(draws().equal(before));
  CHECK(x.add(1.0).sum().item<float>() == 2000.0f);
  // Neither the stream nor the memory is that of a recording any more.
  const auto other = make_device_recorder(Unrecordable::kRefused);
  const auto graph = other->record([&] { sum = x.add(2.0).sum(); });
  graph->replay();
  CHECK(sum.item<float>() == 3000.0f);
  CHECK(draws().equal(before));
}

TEST_CASE("gpu step graph: a training that cannot be recorded has the bits of one that is not") {
  const KernelScope scope(kFixedOrder);
  const comm::MpiGroup world = comm::MpiGroup::world();
  Experiment experiment = graph_experiment(small_forecaster(), "fp16");
  const TrainingOutcome plain = run(experiment, Layout{}, world, own_gpu());
  experiment.options.recorder = std::make_shared<WaitingRecorder>();
  experiment.options.update_recorder = std::make_shared<WaitingRecorder>();
  const TrainingOutcome after = run(experiment, Layout{}, world, own_gpu());
  CHECK(after.losses == plain.losses);
  const Errors errors = compare(after, plain, experiment.learning_rate);
  CAPTURE(errors.worst);
  CHECK(errors.gradient == 0.0);
  CHECK(errors.parameter == 0.0);
  CHECK(errors.state == 0.0);
}

TEST_CASE("gpu step graph: no memory is asked of the driver after the step that follows the recording") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const auto& [micro_batch_size, recording_step] : {std::pair{3, 1}, std::pair{6, 2}}) {
    Experiment experiment = gpu_experiment(small_forecaster(), "fp16");
    experiment.micro_batch_size = micro_batch_size;
    experiment.global_batches.assign(6, 6);
    record_steps(experiment);
    Training training(experiment, Layout{}, world, own_gpu());
    training.run_steps(recording_step + 1);
    const int64_t before = device_allocations();
    training.run_steps();
    CAPTURE(micro_batch_size);
    CHECK(device_allocations() == before);
  }
}

TEST_SUITE_END();
