// Micro-batches in parts (--tp-overlap) train the same function: against one process with whole micro-batches.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/base/text.h"
#include "src/report/scores.h"
#include "tests/support/compare.h"
#include "tests/support/mpi_test.h"
#include "tests/support/test_layouts.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// As in test_layouts.cpp and test_half_precision.cpp.
constexpr double kGradientBound64 = 1e-11;
constexpr double kParameterBound64 = 1e-10;
constexpr double kGradientBound32 = 2e-4;
constexpr double kMostTimesOneProcess = 2.0;

Experiment experiment(model::VitOptions model, const char* precision, zero::OptimizerKind optimizer) {
  Experiment result;
  result.name = model.task == model::Task::kClassify ? "classify" : "forecast";
  result.options.model = std::move(model);
  result.options.model.depth = 3;
  result.options.model.dropout = 0.1;
  result.options.model.attention_dropout = 0.1;
  result.options.model.drop_path = 0.2;
  result.options.precision = zero::make_precision_policy(precision);
  result.options.optimizer.weight_decay = 0.01;
  result.options.optimizer.kind = optimizer;
  result.options.clip_norm = 0.5;
  result.options.bucket_bytes = 8 << 10;  // several buckets
  result.options.seed = 11;
  result.global_batches = {17, 9, 4, 1};  // micro-batches of 3, 2 and 1 samples, and replicas without any
  return result;
}

std::vector<Experiment> experiments(const char* precision, zero::OptimizerKind optimizer) {
  return {experiment(small_forecaster(), precision, optimizer),
          experiment(small_classifier(model::Pooling::kToken), precision, optimizer)};
}

Experiment in_parts(Experiment whole, model::Recompute recompute = model::Recompute::kNone) {
  whole.options.micro_batch_parts = 2;
  whole.options.recompute = recompute;
  return whole;
}

std::vector<Layout> tensor_layouts(int num_ranks) {
  std::vector<Layout> layouts = test_layouts(num_ranks);
  std::erase_if(layouts, [](const Layout& layout) { return layout.tp == 1; });
  return layouts;
}

TrainingOutcome one_process(const Experiment& experiment, const comm::MpiGroup& world) {
  const comm::MpiGroup alone = world.split(world.rank());
  return run(experiment, Layout{1, 1, 1, zero::ZeroStage::kReplicated}, alone);
}

// Of 7 samples, which every replica evaluates, with the weights after a step; zeros but on the last stage.
at::Tensor evaluated(const Experiment& experiment, const Layout& layout, const comm::MpiGroup& world) {
  Training training(experiment, layout, world);
  training.run_steps(1);
  auto sums = train::EvaluationSums::classification();
  train::StepPlan plan;
  plan.micro_batches = {{0, 1, 2}, {3, 4, 5}, {6}};
  plan.global_batch = 7;
  plan.evaluation = &sums;
  const auto micro_batches = plan.micro_batches;
  size_t next = 0;
  training.engine().model().evaluate(std::move(plan),
                                     [&] { return make_batch(experiment.options.model, micro_batches[next++]); });
  return sums.sums();
}

}  // namespace

TEST_CASE("micro-batch parts: fp64 losses, gradients, parameters and optimizer state are those of one process") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const Experiment& whole : experiments("fp64", zero::OptimizerKind::kAdamW)) {
    const TrainingOutcome reference = one_process(whole, world);
    for (const Layout& layout : tensor_layouts(world.size())) {
      for (const auto recompute : {model::Recompute::kNone, model::Recompute::kSelective}) {
        CAPTURE(whole.name);
        CAPTURE(layout.text());
        CAPTURE(static_cast<int>(recompute));
        const Errors errors = compare(run(in_parts(whole, recompute), layout, world), reference, whole.learning_rate);
        CAPTURE(errors.worst);
        CHECK(errors.loss <= kGradientBound64);
        CHECK(errors.norm <= kGradientBound64);
        CHECK(errors.gradient <= kGradientBound64);
        CHECK(errors.parameter <= kParameterBound64);
        CHECK(errors.state <= kParameterBound64);
      }
    }
  }
}

TEST_CASE("micro-batch parts: fp32 losses and gradients stay within rounding of one process") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (Experiment whole : experiments("fp32", zero::OptimizerKind::kAdamW)) {
    whole.global_batches = {17};  // later steps compare different weights: Adam magnifies rounding
    const TrainingOutcome reference = one_process(whole, world);
    for (const Layout& layout : tensor_layouts(world.size())) {
      CAPTURE(whole.name);
      CAPTURE(layout.text());
      const Errors errors = compare(run(in_parts(whole), layout, world), reference, whole.learning_rate);
      CAPTURE(errors.worst);
      CHECK(errors.loss <= kGradientBound32);
      CHECK(errors.gradient <= kGradientBound32);
    }
  }
}

TEST_CASE("micro-batch parts: bf16 is as near to fp64 as one process") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  auto exact_ones = experiments("fp64", zero::OptimizerKind::kSgd);
  auto halves = experiments("bf16", zero::OptimizerKind::kSgd);
  for (size_t i = 0; i < halves.size(); ++i) {
    exact_ones[i].options.clip_norm = halves[i].options.clip_norm = 2.0;
    exact_ones[i].global_batches = halves[i].global_batches = {17, 17, 4};
    const TrainingOutcome exact = one_process(exact_ones[i], world);
    const Errors alone = compare(one_process(halves[i], world), exact, halves[i].learning_rate);
    for (const Layout& layout : tensor_layouts(world.size())) {
      CAPTURE(halves[i].name);
      CAPTURE(layout.text());
      const Errors errors = compare(run(in_parts(halves[i]), layout, world), exact, halves[i].learning_rate);
      CAPTURE(errors.worst);
      CHECK(errors.gradient <= kMostTimesOneProcess * alone.gradient);
      CHECK(errors.parameter <= kMostTimesOneProcess * alone.parameter);
      CHECK(errors.state <= kMostTimesOneProcess * alone.state);
    }
  }
}

TEST_CASE("micro-batch parts: an evaluation's sums are those of one process") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const Experiment whole = experiment(small_classifier(model::Pooling::kToken), "fp64", zero::OptimizerKind::kAdamW);
  const at::Tensor reference = evaluated(whole, {1, 1, 1}, world.split(world.rank()));
  for (const Layout& layout : tensor_layouts(world.size())) {
    CAPTURE(layout.text());
    const at::Tensor sums = evaluated(in_parts(whole), layout, world);
    const bool is_last_stage = sums.ne(0.0).any().item<bool>();
    CHECK((layout.pp > 1 || is_last_stage));
    if (is_last_stage) {
      CHECK(relative_error(sums, reference) <= kGradientBound64);
    }
  }
}
