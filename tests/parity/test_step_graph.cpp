// Recorded micro-batches on the host, where a recorder that does recorded work again stands for the device's: the bits
// of a training without.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/train/step_graph.h"
#include "tests/support/mpi_test.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// As on a device, recording changes no number, and a replay works on what stands in the recorded tensors.
class HostRecorder final : public DeviceRecorder {
 public:
  /// Those of the engine that is recorded.
  void set_gradients(at::Tensor gradients) { gradients_ = std::move(gradients); }

  std::unique_ptr<DeviceGraph> record(const std::function<void()>& work) override {
    const at::Tensor before = gradients_.clone();
    work();
    gradients_.copy_(before);
    ++num_recorded_;
    return std::make_unique<Graph>(work, num_replayed_);
  }

  int num_recorded() const { return num_recorded_; }
  int num_replayed() const { return num_replayed_; }

 private:
  class Graph final : public DeviceGraph {
   public:
    Graph(std::function<void()> work, int& num_replayed) : work_(std::move(work)), num_replayed_(num_replayed) {}
    void replay() override {
      const at::AutoGradMode grad_mode(true);
      work_();
      ++num_replayed_;
    }

   private:
    std::function<void()> work_;
    int& num_replayed_;
  };

  at::Tensor gradients_;
  int num_recorded_ = 0;
  int num_replayed_ = 0;
};

Experiment experiment_of(const model::VitOptions& model, const std::string& precision) {
  Experiment experiment;
  experiment.options.model = model;
  experiment.options.precision = zero::make_precision_policy(precision);
  experiment.options.loss_scale = zero::loss_scale_options(precision == "fp16", /*fixed=*/0.0);
  experiment.options.bucket_bytes = 8 << 10;
  experiment.options.clip_norm = 0.5;
  // In micro-batches of at most 3 samples; steps of another size stand between those of the same.
  experiment.global_batches = {8, 8, 4, 8, 4, 7};
  return experiment;
}

bool equal(const TensorsByName& some, const TensorsByName& others) {
  bool all = some.size() == others.size();
  for (const auto& [name, tensor] : some) {
    all = all && tensor.equal(others.at(name));
  }
  return all;
}

// By steps, with a letter for each kind (number of samples, and of those that the loss is divided by), a small one
// where it is computed as it comes, which makes all forget their records, and a capital where it is replayed, ' after
// it was recorded: a b B' | A' B B | c C' | A' B' B | C C | d D' e.
constexpr int kRecorded = 6;
constexpr int kReplayed = 11;

void check_same_bits(Experiment experiment) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const TrainingOutcome plain = run(experiment, Layout{}, world);
  const auto recorder = std::make_shared<HostRecorder>();
  experiment.options.recorder = recorder;
  Training training(experiment, Layout{}, world);
  recorder->set_gradients(training.engine().parameters().gradients());
  training.run_steps();
  const TrainingOutcome recorded = training.outcome();
  CHECK(recorded.losses == plain.losses);
  CHECK(recorded.grad_norms == plain.grad_norms);
  CHECK(recorded.loss_scales == plain.loss_scales);
  for (size_t step = 0; step < plain.gradients.size(); ++step) {
    CAPTURE(step);
    CHECK(equal(recorded.gradients[step], plain.gradients[step]));
  }
  CHECK(equal(recorded.parameters, plain.parameters));
  CHECK(recorder->num_recorded() == 2 * kRecorded);
  CHECK(recorder->num_replayed() == 2 * kReplayed);
}

}  // namespace

TEST_CASE("parity: recorded micro-batches give the bits of a training without, in all precisions") {
  if (world_size() != 1) {
    return;
  }
  for (const char* precision : {"fp64", "fp32", "bf16", "fp16"}) {
    CAPTURE(precision);
    check_same_bits(experiment_of(small_forecaster(), precision));
  }
  check_same_bits(experiment_of(small_classifier(model::Pooling::kToken), "fp64"));
}

TEST_CASE("parity: recorded micro-batches that are computed again in backward") {
  if (world_size() != 1) {
    return;
  }
  Experiment experiment = experiment_of(small_forecaster(), "fp64");
  experiment.options.recompute = model::Recompute::kFull;
  check_same_bits(experiment);
}
