// In what a resumed training differs from the one before.
#include <doctest/doctest.h>

#include "src/config/config_text.h"
#include "src/config/load_run_config.h"

namespace vit_hybrid::train {

TEST_CASE("changed options: what decides the training is named with both values, layout and paths are not") {
  RunConfig before;
  RunConfig now = before;
  const std::string stored = config_text(before);
  CHECK(changed_options(stored, now).empty());
  now.parallel.tp = 4;
  now.run_dir = "elsewhere";
  now.checkpoint.every = 7;
  CHECK(changed_options(stored, now).empty());
  now.schedule.lr = 0.001;
  now.optimizer.beta2 = 0.999;
  now.precision.kind = Precision::kFp64;
  CHECK(changed_options(stored, now) ==
        std::vector<std::string>{"precision fp64 (fp32)", "beta2 0.999 (0.95)", "lr 0.001 (5e-04)"});
}

TEST_CASE("changed options: what was called cosine before, with a warm-up, is another rule now, and that is said") {
  RunConfig now;
  now.schedule.warmup = 5;
  const std::string stored = "lr_schedule: cosine\nwarmup: 5\n";
  CHECK(changed_options(stored, now) ==
        std::vector<std::string>{"lr-schedule cosine (cosine-reference, then called cosine)"});
  CHECK(changed_options(stored + "min_lr: 0\n", now).empty());
  now.schedule.kind = LrSchedule::Kind::kCosineReference;
  CHECK(changed_options(stored, now).empty());
  now.schedule = {};
  CHECK(changed_options("lr_schedule: cosine\nwarmup: 0\n", now).empty());
}

TEST_CASE("changed options: an option that the earlier program did not have is passed over") {
  RunConfig now;
  now.schedule.lr = 0.001;
  CHECK(changed_options("beta1: 0.5\n", now) == std::vector<std::string>{"beta1 0.9 (0.5)"});
}

}  // namespace vit_hybrid::train
