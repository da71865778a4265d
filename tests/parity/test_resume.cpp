// A training that is stopped, saved and resumed in another layout is the training that was not stopped.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/text.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

constexpr double kGradientBound = 1e-11;
constexpr double kParameterBound = 1e-10;
constexpr int64_t kStepsBefore = 2;
constexpr auto kReplicated = zero::ZeroStage::kReplicated;
constexpr auto kSharded = zero::ZeroStage::kOptimizerState;

Experiment experiment(model::VitOptions model) {
  Experiment result;
  result.name = "dropout and clipping";
  result.options.model = model;
  result.options.model.depth = 3;
  result.options.model.dropout = 0.1;
  result.options.model.attention_dropout = 0.1;
  result.options.model.drop_path = 0.2;
  result.options.precision = zero::make_precision_policy("fp64");
  result.options.optimizer.weight_decay = 0.01;
  result.options.optimizer.kind = zero::OptimizerKind::kAdamW;
  result.options.clip_norm = 0.5;
  result.options.bucket_bytes = 8 << 10;  // several buckets
  result.options.seed = 11;
  result.global_batches = {17, 9, 17, 4};
  return result;
}

using Pair = std::pair<Layout, Layout>;

int num_ranks(const Pair& pair) {
  return std::max(pair.first.num_ranks(), pair.second.num_ranks());
}

// The pairs of the default tier: each axis and its share of the optimizer state becomes another, and nothing divides.
std::vector<Pair> chosen_pairs(int ranks) {
  const std::vector<Pair> all = {
      {{1, 1, 1, kReplicated}, {1, 1, 1, kSharded, "gpipe"}},
      {{2, 1, 1, kSharded}, {1, 2, 1, kSharded}},
      {{1, 2, 1, kSharded}, {1, 1, 2, kReplicated}},
      {{1, 1, 2, kSharded}, {2, 1, 1, kReplicated}},
      {{2, 1, 1, kReplicated}, {1, 1, 1, kSharded}},
      {{1, 1, 1, kSharded}, {2, 1, 1, kSharded}},
      {{3, 1, 1, kSharded}, {1, 3, 1, kSharded}},
      {{1, 3, 1, kReplicated}, {1, 1, 3, kSharded}},
      {{2, 2, 1, kSharded}, {2, 2, 1, kSharded}},
      {{2, 2, 1, kSharded}, {1, 2, 2, kSharded}},
      {{4, 1, 1, kReplicated}, {2, 1, 2, kSharded, "1f1b", "pp-dp-tp"}},
      {{1, 1, 4, kSharded}, {3, 1, 1, kSharded}},
      {{.dp = 4, .shard = 2}, {2, 2, 1, kSharded}},
      {{4, 1, 1, kSharded}, {.dp = 4, .shard = 2}},
      {{3, 1, 2, kSharded}, {1, 3, 2, kReplicated}},
      {{2, 2, 2, kSharded}, {2, 2, 2, kSharded}},
      {{2, 2, 2, kSharded}, {8, 1, 1, kSharded}},
      {{8, 1, 1, kSharded}, {1, 4, 2, kReplicated}},
      {{1, 4, 2, kSharded}, {2, 1, 4, kSharded}},
      {{2, 2, 2, kReplicated}, {1, 1, 1, kSharded}},
      {{.dp = 8, .shard = 2}, {.dp = 8, .shard = 4}},
      {{.dp = 4, .tp = 2, .shard = 2}, {2, 2, 1, kReplicated}},
      {{1, 1, 1, kSharded}, {2, 2, 2, kSharded, "gpipe", "dp-tp-pp"}},
  };
  std::vector<Pair> result;
  std::copy_if(all.begin(), all.end(), std::back_inserter(result),
               [&](const Pair& p) { return num_ranks(p) == ranks; });
  return result;
}

// Calls `function` with the first `layout.num_ranks()` ranks of `world` as a group, on those.
template <class Function>
void on_ranks_of(const Layout& layout, const comm::MpiGroup& world, Function&& function) {
  const bool takes_part = world.rank() < layout.num_ranks();
  const comm::MpiGroup group = world.split(takes_part ? 0 : 1);
  if (takes_part) {
    function(group);
  }
  world.barrier();
}

TrainingOutcome one_process(const Experiment& experiment, const comm::MpiGroup& world) {
  const comm::MpiGroup alone = world.split(world.rank());
  return run(experiment, Layout{1, 1, 1, kReplicated}, alone);
}

void check_close(const TrainingOutcome& outcome, const TrainingOutcome& reference, const Experiment& experiment) {
  const Errors errors = compare(outcome, reference, experiment.learning_rate);
  CAPTURE(errors.worst);
  CHECK(errors.loss <= kGradientBound);
  CHECK(errors.norm <= kGradientBound);
  CHECK(errors.gradient <= kGradientBound);
  CHECK(errors.parameter <= kParameterBound);
  CHECK(errors.state <= kParameterBound);
}

// Stopped and saved in the first layout, restored bit for bit and brought to its end in the second.
void check_resumption(const Experiment& trained, const TrainingOutcome& reference, const Pair& pair,
                      const comm::MpiGroup& world) {
  const ScratchFolder folder(world);
  std::map<std::string, std::string> saved;
  on_ranks_of(pair.first, world, [&](const comm::MpiGroup& group) {
    Training training(trained, pair.first, group);
    training.run_steps(kStepsBefore);
    training.save(folder.file("state.h5"));
    saved = training.checksums();
  });
  on_ranks_of(pair.second, world, [&](const comm::MpiGroup& group) {
    Training training(trained, pair.second, group);
    training.load(folder.file("state.h5"));
    if (world.rank() < pair.first.num_ranks()) {
      CHECK(training.checksums() == saved);
    } else {
      training.checksums();
    }
    training.run_steps();
    CHECK(training.outcome().first_step == kStepsBefore);
    check_close(training.outcome(), reference, trained);
  });
}

}  // namespace

TEST_CASE("resume: stopped in one layout and resumed in another is the run that was not stopped") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const auto& model : {small_forecaster(), small_classifier(model::Pooling::kToken)}) {
    const Experiment trained = experiment(model);
    const TrainingOutcome reference = one_process(trained, world);
    for (const Pair& pair : chosen_pairs(world.size())) {
      CAPTURE(pair.first.text());
      CAPTURE(pair.second.text());
      check_resumption(trained, reference, pair, world);
    }
  }
}

TEST_CASE("resume: every optimizer goes on in another layout") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  Experiment trained = experiment(small_classifier(model::Pooling::kToken));
  trained.options.optimizer.trust_coefficient = 0.1;
  for (const auto kind : {zero::OptimizerKind::kSgd, zero::OptimizerKind::kLamb, zero::OptimizerKind::kLars}) {
    trained.options.optimizer.kind = kind;
    CAPTURE(zero::optimizer_name(kind));
    const TrainingOutcome reference = one_process(trained, world);
    const auto pairs = chosen_pairs(world.size());
    for (size_t i = 0; i < pairs.size(); i += 3) {  // each third shows what an optimizer can do differently
      CAPTURE(pairs[i].first.text());
      CAPTURE(pairs[i].second.text());
      check_resumption(trained, reference, pairs[i], world);
    }
  }
}

TEST_CASE("resume: in the same layout the bits are those of the run that was not stopped") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const Experiment trained = experiment(small_forecaster());
  const int size = world.size();
  std::vector<Layout> layouts = {{size, 1, 1, kSharded}, {size, 1, 1, kReplicated}};
  if (size % 2 == 0) {
    layouts.push_back({1, 2, size / 2 > 4 ? 1 : size / 2, kSharded});
  }
  if (size == 8) {
    layouts.push_back({2, 2, 2, kSharded});
  }
  for (const Layout& layout : layouts) {
    CAPTURE(layout.text());
    const ScratchFolder folder(world);
    on_ranks_of(layout, world, [&](const comm::MpiGroup& group) {
      Training straight(trained, layout, group);
      straight.run_steps(kStepsBefore);
      straight.save(folder.file("state.h5"));
      straight.run_steps();
      Training resumed(trained, layout, group);
      resumed.load(folder.file("state.h5"));
      resumed.run_steps();
      CHECK(resumed.checksums() == straight.checksums());
    });
  }
}

TEST_CASE("resume: precision may change") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  Experiment trained = experiment(small_forecaster());
  const Layout layout{world.size(), 1, 1, kSharded};
  trained.options.precision = zero::make_precision_policy("fp32");
  Training first(trained, layout, world);
  first.run_steps(kStepsBefore);
  first.save(folder.file("fp32.h5"));
  Experiment wide = trained;
  wide.options.precision = zero::make_precision_policy("fp64");
  Training second(wide, layout, world);
  second.load(folder.file("fp32.h5"));
  second.save(folder.file("fp64.h5"));
  Training third(trained, layout, world);
  third.load(folder.file("fp64.h5"));
  CHECK(third.checksums() == first.checksums());  // fp32 numbers are fp64 numbers
  CHECK(second.checksums() != first.checksums());
}

// All ordered pairs of all layouts of 1, 2, 4 and 8 ranks, ZeRO on and off: one canonical state, one set of checksums.
TEST_CASE("resume pairs: all ordered pairs of layouts restore the same state" * doctest::skip()) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  Experiment trained = experiment(small_forecaster());
  trained.options.model.depth = 6;
  trained.options.model.num_heads = 8;
  std::vector<Layout> layouts;
  for (const int ranks : {1, 2, 4, 8}) {
    for (int tp = 1; tp <= ranks; tp *= 2) {
      for (int pp = 1; tp * pp <= ranks; pp *= 2) {
        layouts.push_back({ranks / tp / pp, tp, pp, kSharded});
        layouts.push_back({ranks / tp / pp, tp, pp, kReplicated});
        for (int shard = 2; shard < ranks / tp / pp; shard *= 2) {
          layouts.push_back({.dp = ranks / tp / pp, .tp = tp, .pp = pp, .shard = shard});
        }
      }
    }
  }
  const TrainingOutcome reference = one_process(trained, world);
  const ScratchFolder folder(world);
  std::map<std::string, std::string> canonical;
  {
    const comm::MpiGroup alone = world.split(world.rank());
    Training training(trained, {1, 1, 1, kReplicated}, alone);
    training.run_steps(kStepsBefore);
    canonical = training.checksums();
    if (world.rank() == 0) {
      training.save(folder.file("canonical.h5"));
    }
    world.barrier();
  }
  int num_pairs = 0;
  for (size_t from = 0; from < layouts.size(); ++from) {
    on_ranks_of(layouts[from], world, [&](const comm::MpiGroup& group) {
      Training training(trained, layouts[from], group);
      training.load(folder.file("canonical.h5"));
      training.save(folder.file(str(from, ".h5")));
    });
  }
  for (size_t to = 0; to < layouts.size(); ++to) {
    on_ranks_of(layouts[to], world, [&](const comm::MpiGroup& group) {
      Training training(trained, layouts[to], group);
      for (size_t from = 0; from < layouts.size(); ++from) {
        CAPTURE(layouts[from].text());
        CAPTURE(layouts[to].text());
        training.load(folder.file(str(from, ".h5")));
        REQUIRE(training.checksums() == canonical);
        ++num_pairs;
      }
      training.run_steps();
      check_close(training.outcome(), reference, trained);
    });
  }
  if (world.rank() == 0) {
    MESSAGE(num_pairs << " ordered pairs of layouts");
  }
}
