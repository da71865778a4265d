// Random models, batches and layouts against one process: what the table of test_layouts.cpp did not think of.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "src/base/text.h"
#include "tests/support/training_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

constexpr uint64_t kNumExperiments = 30;
constexpr double kGradientBound = 1e-11;
constexpr double kParameterBound = 1e-10;

// A sequence of draws, the same on all ranks.
class Dice {
 public:
  explicit Dice(uint64_t number) : stream_(2024, Purpose::kTest, number) {}
  int64_t between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(stream_.below(static_cast<uint64_t>(last - first + 1), next_++));
  }
  bool toss() { return between(0, 1) == 1; }
  template <class T>
  T one_of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(between(0, static_cast<int64_t>(choices.size()) - 1))];
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

std::vector<int> divisors(int number) {
  std::vector<int> result;
  for (int divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor == 0) {
      result.push_back(divisor);
    }
  }
  return result;
}

Layout random_layout(Dice& dice, int num_ranks) {
  Layout layout;
  layout.tp = dice.one_of(divisors(num_ranks));
  layout.pp = dice.one_of(divisors(num_ranks / layout.tp));
  layout.dp = num_ranks / (layout.tp * layout.pp);
  layout.zero = dice.toss() ? zero::ZeroStage::kOptimizerState : zero::ZeroStage::kReplicated;
  layout.schedule = dice.toss() ? "1f1b" : "gpipe";
  layout.order = dice.one_of<std::string>({"tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"});
  if (layout.zero == zero::ZeroStage::kOptimizerState) {
    const int shard = dice.one_of(divisors(layout.dp));
    layout.shard = shard > 1 ? shard : 0;
  }
  return layout;
}

model::VitOptions random_model(Dice& dice) {
  model::VitOptions options;
  options.task = dice.toss() ? model::Task::kForecast : model::Task::kClassify;
  options.pooling = dice.toss() ? model::Pooling::kToken : model::Pooling::kMean;
  options.patch_height = dice.between(1, 4);
  options.patch_width = dice.between(1, 4);
  options.image_height = dice.between(options.patch_height, 5 * options.patch_height);
  options.image_width = dice.between(options.patch_width, 6 * options.patch_width);
  options.in_channels = dice.between(1, 4);
  options.out_channels = options.in_channels;
  options.num_classes = dice.between(2, 11);
  options.num_heads = dice.between(1, 9);
  // Not very few features: two of them leave a layer norm as +1 and -1 whatever they are, and its gradient is rounding.
  options.embed_dim = options.num_heads * (dice.between(1, 6) + 6 / options.num_heads);
  options.mlp_hidden = dice.between(8, 70);
  options.depth = dice.between(1, 7);
  if (dice.toss()) {
    options.dropout = 0.15;
    options.attention_dropout = dice.toss() ? 0.2 : 0.0;
    options.drop_path = dice.toss() ? 0.3 : 0.0;
  }
  return options;
}

Experiment random_experiment(Dice& dice) {
  Experiment experiment;
  experiment.options.model = random_model(dice);
  experiment.options.precision = zero::make_precision_policy("fp64");
  experiment.options.optimizer.kind = dice.one_of<zero::OptimizerKind>(
      {zero::OptimizerKind::kAdam, zero::OptimizerKind::kAdamW, zero::OptimizerKind::kSgd, zero::OptimizerKind::kLamb,
       zero::OptimizerKind::kLars});
  experiment.options.optimizer.weight_decay = 0.02;
  experiment.options.clip_norm = dice.toss() ? 0.3 : 0.0;
  experiment.options.bucket_bytes = dice.one_of<int64_t>({256, 4 << 10, 1 << 20});
  experiment.options.seed = static_cast<uint64_t>(dice.between(0, 1000));
  experiment.micro_batch_size = dice.between(1, 6);
  experiment.global_batches = {dice.between(1, 24), dice.between(1, 24), 1};
  return experiment;
}

std::string text_of(const Experiment& experiment) {
  const model::VitOptions& model = experiment.options.model;
  return str(model.task == model::Task::kForecast ? "forecast" : "classify", ", patch ", model.patch_height, " x ",
             model.patch_width, ", image ", model.image_height, " x ", model.image_width, ", ", model.num_heads,
             " heads of ", model.head_dim(), ", hidden ", model.mlp_hidden, ", depth ", model.depth, ", dropout ",
             model.dropout, " ", model.attention_dropout, " ", model.drop_path, ", batches ",
             join(experiment.global_batches), " by ", experiment.micro_batch_size);
}

}  // namespace

// Long; `launch/test --full` runs it.
TEST_CASE("random layouts: fp64 losses, gradients, parameters and optimizer state are those of one process" *
          doctest::skip()) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const comm::MpiGroup alone = world.split(world.rank());
  uint64_t number = 0;
  for (uint64_t done = 0; done < kNumExperiments; ++number) {
    Dice dice(number * 100 + static_cast<uint64_t>(world.size()));
    const Layout layout = random_layout(dice, world.size());
    const Experiment experiment = random_experiment(dice);
    if (!model::validate(experiment.options.model, layout.tp, layout.pp).empty()) {
      continue;  // fewer heads than tensor ranks, or the like
    }
    ++done;
    CAPTURE(number);
    CAPTURE(layout.text());
    CAPTURE(text_of(experiment));
    const TrainingOutcome reference = run(experiment, Layout{1, 1, 1, zero::ZeroStage::kReplicated}, alone);
    const Errors errors = compare(run(experiment, layout, world), reference, experiment.learning_rate);
    CAPTURE(errors.worst);
    CHECK(errors.loss <= kGradientBound);
    CHECK(errors.norm <= kGradientBound);
    CHECK(errors.gradient <= kGradientBound);
    CHECK(errors.parameter <= kParameterBound);
    CHECK(errors.state <= kParameterBound);
  }
}
