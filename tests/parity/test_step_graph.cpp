// Recorded steps on the host, where a recorder that does recorded work again stands for the device's: the bits of a
// training without.
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <doctest/doctest.h>
#include <torch/library.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/train/model_runner.h"
#include "tests/support/host_recorder.h"
#include "tests/support/mpi_test.h"
#include "tests/support/thrown_error.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

constexpr auto kWatchKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Throws, while it lives, in the place of an operation of LibTorch that this thread calls, counted from 0.
class FailingOperation {
 public:
  FailingOperation(int number, const std::function<void()>& raise) : watch_(kWatchKey) {
    left_ = number;
    raise_ = &raise;
  }
  ~FailingOperation() { raise_ = nullptr; }
  FailingOperation(const FailingOperation&) = delete;
  FailingOperation& operator=(const FailingOperation&) = delete;

  // In the place of every operation.
  static void call(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
    if (raise_ != nullptr && left_-- == 0) {
      (*raise_)();
    }
    const c10::impl::ExcludeDispatchKeyGuard inside(kWatchKey);
    operation.callBoxed(stack);
  }

 private:
  static inline thread_local int left_ = 0;
  static inline thread_local const std::function<void()>* raise_ = nullptr;
  c10::impl::IncludeDispatchKeyGuard watch_;
};

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&FailingOperation::call>());
}

void raise_capture_error() {
  TORCH_CHECK(false, "operation not permitted when stream is capturing\nC++");
}

// Where recordings fail, and how.
struct Failure {
  static constexpr int kNone = -1;
  enum class Place { kBefore, kInside, kAfter };  // of the work

  int recording = kNone;  // of this number, from 0, and all later ones
  Place place = Place::kAfter;
  std::function<void()> raise = raise_capture_error;
  int operation = 0;  // of LibTorch, before which it fails inside
};

class FailingRecorder final : public HostRecorder {
 public:
  explicit FailingRecorder(Failure failure = {}, Unrecordable unrecordable = Unrecordable::kDonePlainly)
      : HostRecorder(unrecordable), failure_(std::move(failure)) {}

 private:
  std::function<void()> do_once(const std::function<void()>& work) override {
    using Place = Failure::Place;
    const bool fails = failure_.recording != Failure::kNone && num_recorded() >= failure_.recording;
    if (fails && failure_.place == Place::kBefore) {
      failure_.raise();
    }
    if (fails && failure_.place == Place::kInside) {
      const FailingOperation failing(failure_.operation, failure_.raise);
      work();
      return work;  // it has fewer operations: the test finds a recording too many
    }
    work();
    if (fails) {
      failure_.raise();
    }
    return work;
  }

  Failure failure_;
};

Experiment experiment_of(const model::VitOptions& model, const std::string& precision) {
  Experiment experiment;
  experiment.options.model = model;
  experiment.options.precision = zero::make_precision_policy(precision);
  experiment.options.loss_scale = zero::loss_scale_options(precision == "fp16", /*fixed=*/0.0);
  experiment.options.loss_scale.growth_interval = 1;  // another scale in each step
  experiment.options.bucket_bytes = 8 << 10;
  experiment.options.clip_norm = 0.5;
  experiment.learning_rate_factor = 0.7;
  // In micro-batches of at most 3 samples; steps of another size stand between those of the same.
  experiment.global_batches = {8, 8, 4, 8, 4, 7};
  return experiment;
}

// By steps, with a letter for each kind (number of samples, and of those that the loss is divided by), a small one
// where it is computed as it comes, which makes all forget their records, and a capital where it is replayed, ' after
// it was recorded: a b B' | A' B B | c C' | A' B' B | C C | d D' e.
constexpr int kRecorded = 6;
constexpr int kReplayed = 11;

// In the first step norm and update are done as they come, in the second recorded and replayed.
constexpr int kPieces = 2;
constexpr int kReplayedSteps = 5;

constexpr int64_t kSkippedStep = 3;
constexpr int64_t kDoneSteps = 5;

// All steps, one of them with a weight from which nothing finite comes.
TrainingOutcome run_with_overflow(Training& training) {
  training.run_steps(kSkippedStep);
  tensor::ParameterBuffer& parameters = training.engine().parameters();
  const at::Tensor kept = parameters.parameter(0).value.clone();
  parameters.write(0, [](const at::Tensor& values) {
    values.flatten().narrow(0, 0, 1).fill_(std::numeric_limits<double>::infinity());
  });
  training.run_steps(1);
  parameters.write(0, [&](const at::Tensor& values) { values.copy_(kept); });
  training.run_steps();
  return training.outcome();
}

bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

void check_same_bits(Experiment experiment, const std::shared_ptr<HostRecorder>& recorder,
                     const std::shared_ptr<HostRecorder>& update_recorder) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  Training plain_training(experiment, Layout{}, world);
  const TrainingOutcome plain = run_with_overflow(plain_training);
  experiment.options.recorder = recorder;
  experiment.options.update_recorder = update_recorder;
  Training training(experiment, Layout{}, world);
  recorder->watch(changed_tensors(training.engine()));
  update_recorder->watch(changed_tensors(training.engine()));
  const TrainingOutcome recorded = run_with_overflow(training);
  for (size_t step = 0; step < plain.losses.size(); ++step) {
    CAPTURE(step);
    CHECK(plain.skipped[step] == (step == kSkippedStep));
    CHECK(same(recorded.losses[step], plain.losses[step]));
    CHECK(same(recorded.grad_norms[step], plain.grad_norms[step]));
    CHECK((plain.skipped[step] || equal(recorded.gradients[step], plain.gradients[step])));
  }
  CHECK(recorded.skipped == plain.skipped);
  CHECK(recorded.loss_scales == plain.loss_scales);
  CHECK(equal(recorded.parameters, plain.parameters));
  for (const auto& [name, state] : plain.states) {
    CHECK(equal(recorded.states.at(name), state));
  }
  CHECK(training.engine().optimizer().num_steps() == kDoneSteps);
}

void check_same_bits(const Experiment& experiment) {
  const auto recorder = std::make_shared<HostRecorder>(), update_recorder = std::make_shared<HostRecorder>();
  check_same_bits(experiment, recorder, update_recorder);
  CHECK(recorder->num_recorded() == 2 * kRecorded);
  CHECK(recorder->num_replayed() == 2 * kReplayed);
  CHECK(update_recorder->num_recorded() == kPieces);
  CHECK(update_recorder->num_replayed() == kPieces * kReplayedSteps);
}

}  // namespace

TEST_CASE("parity: recorded steps give the bits of a training without, in all precisions") {
  if (world_size() != 1) {
    return;
  }
  for (const char* precision : {"fp64", "fp32", "bf16", "fp16"}) {
    CAPTURE(precision);
    check_same_bits(experiment_of(small_forecaster(), precision));
  }
  check_same_bits(experiment_of(small_classifier(model::Pooling::kToken), "fp64"));
}

TEST_CASE("parity: recorded steps with Adam and AdamW, clipped or not") {
  if (world_size() != 1) {
    return;
  }
  for (const auto kind : {zero::OptimizerKind::kAdam, zero::OptimizerKind::kAdamW}) {
    for (const double clip_norm : {0.0, 0.5}) {
      CAPTURE(zero::optimizer_name(kind));
      CAPTURE(clip_norm);
      Experiment experiment = experiment_of(small_forecaster(), "fp16");
      experiment.options.optimizer.kind = kind;
      experiment.options.optimizer.weight_decay = 0.1;
      experiment.options.clip_norm = clip_norm;
      check_same_bits(experiment);
    }
  }
}

TEST_CASE("parity: recorded micro-batches that are computed again in backward") {
  if (world_size() != 1) {
    return;
  }
  Experiment experiment = experiment_of(small_forecaster(), "fp64");
  experiment.options.recompute = model::Recompute::kFull;
  check_same_bits(experiment);
}

namespace {

// Whose recorder fails at all recordings on one rank, if any.
void check_layout(Experiment experiment, const Layout& layout, int num_recorded, int num_replayed,
                  std::optional<int> failing_rank = std::nullopt) {
  CAPTURE(layout.text());
  const comm::MpiGroup world = comm::MpiGroup::world();
  OperationCounts counts;
  const TrainingOutcome plain = run(experiment, layout, world);
  const auto plain_counts = counts.of_last_part();
  const bool fails = failing_rank == world.rank();
  const auto recorder = std::make_shared<FailingRecorder>(Failure{fails ? 0 : Failure::kNone});
  experiment.options.recorder = recorder;
  const TrainingOutcome recorded = [&] {
    Training training(experiment, layout, world);
    recorder->watch(changed_tensors(training.engine()));
    training.run_steps();
    return training.outcome();
  }();
  CHECK(same(recorded, plain));
  CHECK(counts.of_last_part() == plain_counts);
  CHECK(recorder->num_recorded() == (fails ? 0 : num_recorded));
  CHECK(recorder->num_replayed() == num_replayed);
}

}  // namespace

TEST_CASE("parity: of several replicas, micro-batches between the first and the last one of a step are recorded") {
  for (const auto zero : {zero::ZeroStage::kReplicated, zero::ZeroStage::kOptimizerState}) {
    Experiment experiment = experiment_of(small_forecaster(), "fp32");
    // A replica: five micro-batches of 3, none between two, five again; the first between is computed as it comes.
    experiment.global_batches = {30, 12, 30};
    constexpr int kReplayedBetween = 2 + 3;
    for (const Layout& layout : {Layout{.dp = 2, .zero = zero}, Layout{.dp = 2, .tp = 2, .zero = zero}}) {
      if (layout.num_ranks() == world_size()) {
        check_layout(experiment, layout, 2, 2 * kReplayedBetween);
      }
    }
  }
}

TEST_CASE("parity: the sums of tensor ranks are recorded, and counted at each replay") {
  if (world_size() != 2) {
    return;
  }
  const Layout layout{.tp = 2};
  for (const int parts : {1, 2}) {
    Experiment experiment = experiment_of(small_forecaster(), "fp32");
    experiment.options.micro_batch_parts = parts;
    check_layout(experiment, layout, 2 * kRecorded, 2 * kReplayed);
    experiment.global_batches = {3, 3, 3};  // one micro-batch a step
    check_layout(experiment, layout, 2, 2 * 2);
  }
}

TEST_CASE("parity: what one tensor rank cannot record, none replays") {
  if (world_size() != 2) {
    return;
  }
  check_layout(experiment_of(small_forecaster(), "fp32"), Layout{.tp = 2}, 1, 0, 1);
}

TEST_CASE("parity: steps whose recording fails, at any place, give the bits of a training without") {
  if (world_size() != 1) {
    return;
  }
  const Experiment experiment = experiment_of(small_forecaster(), "fp16");
  // A forward, the backward after it, those of a later kind; the norm, the update.
  for (const int failing : {0, 1, 2, 3, 2 * kRecorded - 1}) {
    CAPTURE(failing);
    const auto recorder = std::make_shared<FailingRecorder>(Failure{failing});
    const auto update_recorder = std::make_shared<HostRecorder>();
    check_same_bits(experiment, recorder, update_recorder);
    CHECK(recorder->num_recorded() == failing);
    CHECK(recorder->num_replayed() < 2 * kReplayed);
    CHECK(update_recorder->num_replayed() == kPieces * kReplayedSteps);
  }
  for (const int failing : {0, 1}) {
    CAPTURE(failing);
    const auto recorder = std::make_shared<HostRecorder>();
    const auto update_recorder = std::make_shared<FailingRecorder>(Failure{failing});
    check_same_bits(experiment, recorder, update_recorder);
    CHECK(update_recorder->num_recorded() == failing);
    CHECK(update_recorder->num_replayed() == failing * kReplayedSteps);
    CHECK(recorder->num_replayed() == 2 * kReplayed);
  }
}

TEST_CASE("parity: steps whose recording fails before or inside of any work, by any exception") {
  if (world_size() != 1) {
    return;
  }
  using Place = Failure::Place;
  constexpr int kForward = 0, kBackward = 1, kNorm = 0, kUpdate = 1;
  const std::function<void()> own = [] { throw Error(ErrorClass::kInternal, "a defect"); };
  const std::function<void()> runtime = [] { throw std::runtime_error("no plan"); };
  const std::function<void()> memory = [] { throw std::bad_alloc(); };
  const Experiment experiment = experiment_of(small_forecaster(), "fp16");
  for (const Failure& failure :
       {Failure{kForward, Place::kBefore, runtime}, Failure{kBackward, Place::kBefore, memory},
        Failure{kForward, Place::kInside, raise_capture_error, 20}, Failure{kForward, Place::kInside, memory, 5},
        Failure{kBackward, Place::kInside, runtime, 20}, Failure{kBackward, Place::kInside, own, 5}}) {
    CAPTURE(failure.recording);
    CAPTURE(failure.operation);
    const auto recorder = std::make_shared<FailingRecorder>(failure);
    const auto update_recorder = std::make_shared<HostRecorder>();
    check_same_bits(experiment, recorder, update_recorder);
    CHECK(recorder->num_recorded() == failure.recording);
    CHECK(update_recorder->num_replayed() == kPieces * kReplayedSteps);
  }
  for (const Failure& failure :
       {Failure{kNorm, Place::kBefore, memory}, Failure{kUpdate, Place::kBefore, runtime},
        Failure{kNorm, Place::kInside, runtime, 1}, Failure{kUpdate, Place::kInside, own, 1}}) {
    CAPTURE(failure.recording);
    CAPTURE(failure.operation);
    const auto recorder = std::make_shared<HostRecorder>();
    const auto update_recorder = std::make_shared<FailingRecorder>(failure);
    check_same_bits(experiment, recorder, update_recorder);
    CHECK(update_recorder->num_recorded() == failure.recording);
    CHECK(recorder->num_replayed() == 2 * kReplayed);
  }
}

TEST_CASE("parity: a recording that must not fail ends the training with its first line") {
  if (world_size() != 1) {
    return;
  }
  Experiment experiment = experiment_of(small_forecaster(), "fp32");
  experiment.options.recorder = std::make_shared<FailingRecorder>(Failure{0}, Unrecordable::kRefused);
  Training training(experiment, Layout{}, comm::MpiGroup::world());
  const Error error = thrown_error([&] { training.run_steps(); });
  CHECK(error.error_class() == ErrorClass::kInternal);
  CHECK(error.message() ==
        "the step could not be recorded as a CUDA graph: operation not permitted when stream is capturing");
  CHECK(error.hint() == "--cuda-graph off trains without");
}
