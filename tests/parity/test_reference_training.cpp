// One process against a plain LibTorch model and the textbook Adam: five steps of training.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "tests/support/compare.h"
#include "tests/support/mpi_test.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// WORKLOAD's losses, written with ATen operations under LibTorch's autograd; mean over the samples.
at::Tensor plain_loss(const model::VitOptions& options, const at::Tensor& output, const at::Tensor& target) {
  if (options.task == model::Task::kForecast) {
    const auto norm = [](const at::Tensor& x) { return x.flatten(1).square().sum(1).sqrt(); };
    return (norm(output - target) / norm(target)).mean();
  }
  const at::Tensor log_p = at::log_softmax(output, 1);
  const at::Tensor picked = log_p.gather(1, target.unsqueeze(1)).squeeze(1);
  const double e = options.label_smoothing;
  return -((1.0 - e) * picked + e * log_p.mean(1)).mean();
}

struct PlainAdamW {
  NamedTensors exp_avg;
  NamedTensors exp_avg_sq;

  void step(NamedTensors& parameters, const NamedTensors& gradients, double lr, double t, double weight_decay) {
    const double b1 = 0.9, b2 = 0.95, eps = 1e-8;
    for (auto& [name, w] : parameters) {
      at::Tensor g = gradients.at(name);
      if (!exp_avg.count(name)) {
        exp_avg[name] = at::zeros_like(w);
        exp_avg_sq[name] = at::zeros_like(w);
      }
      exp_avg[name] = b1 * exp_avg[name] + (1 - b1) * g;
      exp_avg_sq[name] = b2 * exp_avg_sq[name] + (1 - b2) * g * g;
      const bool is_matrix = w.dim() > 1 && name != "pos_embed" && name != "cls_token";
      const at::Tensor decayed = w * (1.0 - lr * (is_matrix ? weight_decay : 0.0));
      w = decayed -
          lr / (1 - std::pow(b1, t)) * exp_avg[name] / ((exp_avg_sq[name] / (1 - std::pow(b2, t))).sqrt() + eps);
    }
  }
};

// The weights that the seed gives: a run of no steps.
NamedTensors initial_parameters(Experiment experiment, const comm::MpiGroup& world) {
  experiment.global_batches.clear();
  const TrainingOutcome start = run(experiment, Layout{}, world);
  return {start.parameters.begin(), start.parameters.end()};
}

}  // namespace

TEST_CASE("reference: five steps of one process are those of a plain LibTorch model and AdamW") {
  if (world_size() != 1) {
    return;
  }
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const model::VitOptions& model : {small_forecaster(), small_classifier(model::Pooling::kToken)}) {
    Experiment experiment;
    experiment.options.model = model;
    experiment.options.precision = zero::make_precision_policy("fp64");
    experiment.options.optimizer.kind = zero::AdamKind::kAdamW;
    experiment.options.optimizer.weight_decay = 0.01;
    experiment.global_batches = {7, 7, 7, 3, 1};
    const TrainingOutcome ours = run(experiment, Layout{}, world);

    NamedTensors parameters = initial_parameters(experiment, world);
    PlainAdamW adam;
    for (size_t step = 0; step < experiment.global_batches.size(); ++step) {
      std::vector<int64_t> samples(static_cast<size_t>(experiment.global_batches[step]));
      std::iota(samples.begin(), samples.end(), 100 * static_cast<int64_t>(step));
      const data::Batch batch = make_batch(model, samples);
      ReferenceVit reference(model, at::kDouble, parameters);
      const at::Tensor loss = plain_loss(
          model,
          reference.forward(batch.inputs, test_context(experiment.global_batches[step], tensor::Mode::kTraining)),
          batch.targets);
      loss.backward();
      CHECK(ours.losses[step] == doctest::Approx(loss.item<double>()).epsilon(1e-12));
      const NamedTensors gradients = reference.gradients();
      for (const auto& [name, gradient] : gradients) {
        CAPTURE(name);
        CAPTURE(step);
        CHECK(gradient_error(name, ours.gradients[step].at(name), gradient) <= 1e-11);
      }
      const at::NoGradGuard guard;
      adam.step(parameters, gradients, experiment.learning_rate, static_cast<double>(step + 1), 0.01);
    }
    for (const auto& [name, parameter] : parameters) {
      CAPTURE(name);
      CHECK(parameter_error(name, ours.parameters.at(name), parameter, experiment.learning_rate, 5) <= 1e-10);
      CHECK(gradient_error(name, ours.exp_avg.at(name), adam.exp_avg.at(name)) <= 1e-10);
      CHECK(gradient_error(name, ours.exp_avg_sq.at(name), adam.exp_avg_sq.at(name)) <= 1e-10);
    }
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
