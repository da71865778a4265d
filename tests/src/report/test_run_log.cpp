// The table at the end of a run: its columns are those of the task, and none are of a validation that was not done.
#include "src/report/run_log.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace vit_hybrid::train;

namespace {

EpochRecord some_epoch() {
  EpochRecord epoch;
  epoch.epoch = 1;
  epoch.samples = 30;
  epoch.train_loss = 0.25;
  epoch.seconds = 2.0;
  return epoch;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("epoch table: without validation it has no columns of one") {
  CHECK((epoch_table({some_epoch()}, {}) == Lines{" epoch    train loss     samples/s",  //
                                                  "     1      0.250000         15.00"}));
}

TEST_CASE("epoch table: a forecast's validation, and the untrained network") {
  Evaluation figures;
  figures.loss = 0.5;
  figures.rmse = {0.1, 0.3};
  figures.persistence_rmse = {0.4, 0.6};
  const Lines table = epoch_table({some_epoch()}, {{0, 0, figures, 1.0}, {1, 8, figures, 1.0}});
  REQUIRE(table.size() == 4);
  CHECK(table[0] == " epoch    train loss      val loss          RMSE   persistence     samples/s");
  CHECK(table[1] == "     0             -      0.500000      0.200000      0.500000             -");
  CHECK(table[2] == "     1      0.250000      0.500000      0.200000      0.500000         15.00");
}

TEST_CASE("epoch table: a classification's validation") {
  Evaluation figures;
  figures.loss = 0.5;
  figures.top1 = 0.25;
  figures.top5 = 0.75;
  CHECK((epoch_table({some_epoch()}, {{1, 8, figures, 1.0}}) ==
         Lines{" epoch    train loss      val loss         top-1         top-5     samples/s",
               "     1      0.250000      0.500000      0.250000      0.750000         15.00"}));
}
