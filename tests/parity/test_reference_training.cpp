// One process against a plain LibTorch model and the textbook's optimizers: five steps of training.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include <map>
#include <numeric>
#include <string>

#include "tests/support/compare.h"
#include "tests/support/mpi_test.h"
#include "tests/support/textbook_optimizer.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// The losses of docs/workload.md, written with ATen operations under LibTorch's autograd; mean over the samples.
at::Tensor plain_loss(const Experiment& experiment, const at::Tensor& output, const at::Tensor& target) {
  const model::VitOptions& options = experiment.options.model;
  if (options.task == model::Task::kForecast) {
    const auto& [rows, channels] = experiment.loss_weights;
    const at::Tensor weights =
        rows.defined() ? rows.view({-1, 1}) * channels.view({-1, 1, 1}) : at::ones({}, at::kDouble);
    if (options.loss == model::FieldLoss::kMeanSquare) return (weights * (output - target).square()).mean();
    if (options.loss == model::FieldLoss::kMeanAbsolute) return (weights * (output - target).abs()).mean();
    const auto norm = [&](const at::Tensor& x) { return (weights * x.square()).flatten(1).sum(1).sqrt(); };
    return (norm(output - target) / norm(target)).mean();
  }
  const at::Tensor log_p = at::log_softmax(output, 1);
  const at::Tensor picked = log_p.gather(1, target.unsqueeze(1)).squeeze(1);
  const double e = options.label_smoothing;
  return -((1.0 - e) * picked + e * log_p.mean(1)).mean();
}

// The weights that the seed gives: a run of no steps.
NamedTensors initial_parameters(Experiment experiment, const comm::MpiGroup& world) {
  experiment.global_batches.clear();
  const TrainingOutcome start = run(experiment, Layout{}, world);
  return {start.parameters.begin(), start.parameters.end()};
}

zero::OptimizerOptions optimizer_of(zero::OptimizerKind kind) {
  zero::OptimizerOptions options;
  options.kind = kind;
  options.weight_decay = 0.01;
  options.trust_coefficient = 0.1;
  return options;
}

using Optimizers = std::map<std::string, TextbookOptimizer>;

Optimizers textbook_optimizers(const Experiment& experiment, const comm::MpiGroup& world) {
  Optimizers optimizers;
  for (const auto& [name, weights] : initial_parameters(experiment, world)) {
    const bool is_matrix = weights.dim() > 1 && name != "pos_embed" && name != "cls_token";
    optimizers.emplace(name, TextbookOptimizer(experiment.options.optimizer, weights, is_matrix));
  }
  return optimizers;
}

// Loss and gradients of a step with the optimizers' weights, compared with ours, and the step.
void step_and_compare(const Experiment& experiment, size_t step, const TrainingOutcome& ours, Optimizers& optimizers) {
  const model::VitOptions& model = experiment.options.model;
  std::vector<int64_t> samples(static_cast<size_t>(experiment.global_batches[step]));
  std::iota(samples.begin(), samples.end(), 100 * static_cast<int64_t>(step));
  const data::Batch batch = make_batch(model, samples);
  NamedTensors parameters;
  for (const auto& [name, optimizer] : optimizers) {
    parameters[name] = optimizer.weights().clone();
  }
  ReferenceVit reference(model, at::kDouble, parameters);
  const at::Tensor loss = plain_loss(
      experiment, reference.forward(batch.inputs, test_context(experiment.global_batches[step], Mode::kTraining)),
      batch.targets);
  loss.backward();
  CHECK(ours.losses[step] == doctest::Approx(loss.item<double>()).epsilon(1e-12));
  const at::NoGradGuard guard;
  for (const auto& [name, gradient] : reference.gradients()) {
    CAPTURE(name);
    CAPTURE(step);
    CHECK(gradient_error(name, ours.gradients[step].at(name), gradient) <= 1e-11);
    optimizers.at(name).step(gradient, experiment.learning_rate);
  }
}

void check_against_textbook(const model::VitOptions& model, zero::OptimizerKind kind,
                            const model::FieldWeights& weights = {}) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  Experiment experiment;
  experiment.options.model = model;
  experiment.options.precision = zero::make_precision_policy("fp64");
  experiment.options.optimizer = optimizer_of(kind);
  experiment.loss_weights = weights;
  experiment.global_batches = {7, 7, 7, 3, 1};
  const TrainingOutcome ours = run(experiment, Layout{}, world);
  Optimizers optimizers = textbook_optimizers(experiment, world);
  for (size_t step = 0; step < experiment.global_batches.size(); ++step) {
    step_and_compare(experiment, step, ours, optimizers);
  }
  for (const auto& [name, optimizer] : optimizers) {
    CAPTURE(name);
    CHECK(parameter_error(name, ours.parameters.at(name), optimizer.weights(), experiment.learning_rate, 5) <= 1e-10);
    for (const auto& [state, values] : optimizer.states()) {
      CHECK(gradient_error(name, ours.states.at(state).at(name), values) <= 1e-10);
    }
  }
}

}  // namespace

TEST_CASE("reference: five steps of one process are those of a plain LibTorch model and the textbook's optimizers") {
  if (world_size() != 1) {
    return;
  }
  check_against_textbook(small_forecaster(), zero::OptimizerKind::kAdamW);
  check_against_textbook(with_cut_patches(small_forecaster()), zero::OptimizerKind::kAdamW);
  model::VitOptions with_mean_square = with_cut_patches(small_forecaster());
  with_mean_square.loss = model::FieldLoss::kMeanSquare;
  check_against_textbook(with_mean_square, zero::OptimizerKind::kSgd);
  const model::FieldWeights weights = uneven_weights(with_mean_square);
  check_against_textbook(with_cut_patches(small_forecaster()), zero::OptimizerKind::kAdamW, weights);
  check_against_textbook(with_mean_square, zero::OptimizerKind::kSgd, weights);
  with_mean_square.loss = model::FieldLoss::kMeanAbsolute;
  check_against_textbook(with_mean_square, zero::OptimizerKind::kSgd, weights);
  for (const auto kind : {zero::OptimizerKind::kAdam, zero::OptimizerKind::kAdamW, zero::OptimizerKind::kSgd,
                          zero::OptimizerKind::kLamb, zero::OptimizerKind::kLars}) {
    CAPTURE(zero::optimizer_name(kind));
    check_against_textbook(small_classifier(model::Pooling::kToken), kind);
  }
}

TEST_CASE("layouts: 12 blocks over 5 stages train as one process") {
  if (world_size() != 5) {
    return;
  }
  const comm::MpiGroup world = comm::MpiGroup::world();
  Experiment experiment;
  experiment.options.model = small_forecaster();
  experiment.options.model.depth = 12;
  experiment.options.precision = zero::make_precision_policy("fp64");
  experiment.global_batches = {5, 1};
  experiment.micro_batch_size = 2;
  const TrainingOutcome reference = run(experiment, Layout{}, world.split(world.rank()));
  const Errors errors = compare(run(experiment, Layout{1, 1, 5}, world), reference, experiment.learning_rate);
  CAPTURE(errors.worst);
  CHECK(errors.loss <= 1e-11);
  CHECK(errors.gradient <= 1e-11);
  CHECK(errors.parameter <= 1e-10);
}
