// Recompute in every kind of layout: losses, norms, gradients, parameters and optimizer state of a training keep all
// bits.
#include <doctest/doctest.h>

#include <ATen/ops/equal.h>

#include <vector>

#include "src/base/text.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// Batches of 9 in micro-batches of 3: gradients are accumulated, and the pipeline has several in flight.
Experiment experiment(const char* precision) {
  Experiment result;
  result.name = precision;
  result.options.model = small_forecaster();
  result.options.model.depth = 3;
  result.options.model.dropout = 0.1;
  result.options.model.attention_dropout = 0.1;
  result.options.model.drop_path = 0.2;
  result.options.precision = zero::make_precision_policy(precision);
  result.options.optimizer.kind = zero::OptimizerKind::kAdamW;
  result.options.clip_norm = 0.5;
  result.options.bucket_bytes = 8 << 10;  // several buckets: each is reduced when its parameters are ready
  result.options.seed = 11;
  result.global_batches = {9, 4};
  return result;
}

std::vector<Layout> layouts(int num_ranks) {
  switch (num_ranks) {
    case 1:
      return {{1, 1, 1}};
    case 2:
      return {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}};
    case 4:
      return {{2, 2, 1}, {1, 2, 2}};
    default:
      return {{2, 2, 2}};
  }
}

void check_equal(const TensorsByName& tensors, const TensorsByName& reference) {
  REQUIRE(tensors.size() == reference.size());
  for (const auto& [name, tensor] : reference) {
    CAPTURE(name);
    CHECK(at::equal(tensors.at(name), tensor));
  }
}

}  // namespace

TEST_CASE("recompute: a training in any layout has the bits of one without it") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const char* precision : {"fp32", "fp64", "bf16"}) {
    for (const Layout& layout : layouts(world.size())) {
      Experiment trained = experiment(precision);
      const TrainingOutcome reference = run(trained, layout, world);
      for (const auto recompute : {model::Recompute::kSelective, model::Recompute::kFull}) {
        trained.options.recompute = recompute;
        const TrainingOutcome outcome = run(trained, layout, world);
        CAPTURE(str(precision, ", ", layout.text(), ", recompute ", static_cast<int>(recompute)));
        CHECK(outcome.losses == reference.losses);
        CHECK(outcome.grad_norms == reference.grad_norms);
        for (size_t step = 0; step < reference.gradients.size(); ++step) {
          check_equal(outcome.gradients[step], reference.gradients[step]);
        }
        check_equal(outcome.parameters, reference.parameters);
        for (const auto& [name, state] : reference.states) {
          check_equal(outcome.states.at(name), state);
        }
      }
    }
  }
}
