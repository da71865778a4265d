// bf16 and fp16 in every layout: no further from fp64 than one process is, the same steps skipped, the scale restored.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "tests/support/mpi_test.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_layouts.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// See docs/numerics.md: what a layout adds is other roundings of as many sums, and one more rounding of each partial
// sum of a tensor group.
constexpr double kMostTimesOneProcess = 2.0;

zero::PrecisionPolicy with_half_gradients(zero::PrecisionPolicy policy) {
  policy.gradient = policy.reduce = policy.compute;
  return policy;
}

zero::PrecisionPolicy with_half_reduction(zero::PrecisionPolicy policy) {
  policy.reduce = policy.compute;
  return policy;
}

// SGD with momentum: it moves the weights by what the gradients are, where Adam's division would magnify their noise.
Experiment experiment(std::string name, model::VitOptions model, const zero::PrecisionPolicy& precision) {
  Experiment result;
  result.name = std::move(name);
  result.options.model = std::move(model);
  result.options.model.depth = 3;
  result.options.precision = precision;
  result.options.loss_scale = zero::loss_scale_options(precision.compute == at::kHalf, 0.0);
  result.options.optimizer.kind = zero::OptimizerKind::kSgd;
  result.options.optimizer.weight_decay = 0.01;
  result.options.clip_norm = 2.0;
  result.options.bucket_bytes = 8 << 10;
  result.options.seed = 11;
  result.learning_rate = 1e-2;
  result.global_batches = {17, 17, 4};
  return result;
}

Experiment with_dropout(Experiment plain) {
  plain.name += ", dropout";
  plain.options.model.dropout = 0.1;
  plain.options.model.attention_dropout = 0.1;
  plain.options.model.drop_path = 0.2;
  return plain;
}

std::vector<Experiment> experiments(const char* precision) {
  const zero::PrecisionPolicy policy = zero::make_precision_policy(precision);
  return {experiment("forecast", small_forecaster(), policy),
          with_dropout(experiment("classify", small_classifier(model::Pooling::kToken), policy)),
          experiment("forecast, half gradients", small_forecaster(), with_half_gradients(policy)),
          experiment("classify, half reduction", small_classifier(model::Pooling::kMean), with_half_reduction(policy))};
}

TrainingOutcome one_process(const Experiment& experiment, const comm::MpiGroup& world) {
  const comm::MpiGroup alone = world.split(world.rank());
  return run(experiment, Layout{1, 1, 1, zero::ZeroStage::kReplicated}, alone);
}

TrainingOutcome in_double(Experiment experiment, const comm::MpiGroup& world) {
  experiment.options.precision = zero::make_precision_policy("fp64");
  experiment.options.loss_scale = {};
  return one_process(experiment, world);
}

void check_precision(const char* precision) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const Experiment& experiment : experiments(precision)) {
    const TrainingOutcome exact = in_double(experiment, world);
    const Errors alone = compare(one_process(experiment, world), exact, experiment.learning_rate);
    for (const Layout& layout : test_layouts(world.size())) {
      CAPTURE(precision);
      CAPTURE(experiment.name);
      CAPTURE(layout.text());
      const TrainingOutcome outcome = run(experiment, layout, world);
      const Errors errors = compare(outcome, exact, experiment.learning_rate);
      CAPTURE(errors.worst);
      CHECK(errors.gradient <= kMostTimesOneProcess * alone.gradient);
      CHECK(errors.parameter <= kMostTimesOneProcess * alone.parameter);
      CHECK(errors.state <= kMostTimesOneProcess * alone.state);
      CHECK(outcome.parameters_are_cast);
    }
  }
}

// `all`: of every rank; else of the first, the last and another one, not the same in each layout.
void check_overflows(bool all) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  Experiment trained = experiment("forecast", small_forecaster(), zero::make_precision_policy("fp16"));
  trained.global_batches = {17, 17, 17};
  trained.options.loss_scale.initial = 1024;
  int number = 0;
  for (const Layout& layout : test_layouts(world.size())) {
    ++number;
    for (int guilty = 0; guilty < world.size(); ++guilty) {
      if (!all && guilty != 0 && guilty != world.size() - 1 && guilty != number % world.size()) {
        continue;
      }
      CAPTURE(layout.text());
      CAPTURE(guilty);
      Training training(trained, layout, world);
      training.run_steps(1);
      const auto before = training.checksums();
      // One weight of that rank's copy, so that its gradients, and what it hands on, are not finite.
      tensor::ParameterBuffer& parameters = training.engine().parameters();
      const at::Tensor kept = parameters.parameter(0).value.clone();
      if (world.rank() == guilty) {
        parameters.write(0, [](const at::Tensor& values) {
          values.flatten().narrow(0, 0, 1).fill_(std::numeric_limits<float>::infinity());
        });
      }
      training.run_steps(1);
      parameters.write(0, [&](const at::Tensor& values) { values.copy_(kept); });
      CHECK(training.checksums() == before);
      training.run_steps(1);
      const TrainingOutcome outcome = training.outcome();
      CHECK(outcome.skipped == std::vector<bool>{false, true, false});
      CHECK(outcome.loss_scales == std::vector<double>{1024, 1024, 512});
      CHECK(training.engine().loss_scaler().state().skipped_steps == 1);
      CHECK(outcome.parameters_are_cast);
    }
  }
}

}  // namespace

TEST_CASE("half precision: bf16 in every layout is as near to fp64 as one process") {
  check_precision("bf16");
}

TEST_CASE("half precision: fp16 in every layout is as near to fp64 as one process") {
  check_precision("fp16");
}

TEST_CASE("half precision: an overflow on any one rank makes all ranks skip that step, and no other") {
  check_overflows(false);
}

TEST_CASE("long: half precision: an overflow on each rank" * doctest::skip()) {
  check_overflows(true);
}

TEST_CASE("half precision: a training goes on from its checkpoint with the loss scale where it was") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  Experiment trained = experiment("forecast", small_forecaster(), zero::make_precision_policy("fp16"));
  trained.global_batches = {9, 9, 9, 9, 9, 9};
  trained.options.loss_scale.initial = 0x1p18;  // overflows first: fp16 ends at 65504
  trained.options.loss_scale.growth_interval = 2;
  for (const Layout& layout : test_layouts(world.size())) {
    CAPTURE(layout.text());
    Training whole(trained, layout, world);
    whole.run_steps();
    Training first(trained, layout, world);
    first.run_steps(3);
    const std::string path = folder.file(str("at 3 in ", layout.text(), ".h5"));
    first.save(path);
    Training second(trained, layout, world);
    second.load(path);
    CHECK(second.engine().loss_scaler().state() == first.engine().loss_scaler().state());
    second.run_steps();
    const std::vector<double> scales = whole.outcome().loss_scales;
    CHECK(second.outcome().loss_scales == std::vector<double>(scales.begin() + 3, scales.end()));
    CHECK(second.engine().loss_scaler().state() == whole.engine().loss_scaler().state());
    CHECK(second.checksums() == whole.checksums());
  }
}
