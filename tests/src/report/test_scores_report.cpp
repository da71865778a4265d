// The table and the JSON object of an evaluation's figures.
#include <doctest/doctest.h>

#include "src/report/scores.h"

using namespace vit_hybrid::train;

namespace {

Evaluation forecast_figures() {
  Evaluation figures;
  figures.samples = 3;
  figures.loss = 0.25;
  figures.rmse = {0.1, 0.3};
  figures.acc = {0.9, -0.5};
  figures.persistence_rmse = {0.2, 0.6};
  figures.persistence_acc = {0.8, 0.0};
  return figures;
}

}  // namespace

TEST_CASE("evaluation report: a line for each channel and one for their means") {
  const auto lines = table_lines(forecast_figures(), {"u10", "a_name_longer_than_its_column"});
  REQUIRE(lines.size() == 6);
  CHECK(lines[0] == "3 samples, loss 0.250000");
  CHECK(lines[2] == "u10                         0.100000      0.200000      0.900000      0.800000");
  CHECK(lines[3] == "a_name_longer_than_its_column       0.300000      0.600000     -0.500000      0.000000");
  CHECK(lines[4] == "mean                        0.200000      0.400000      0.200000      0.400000");
}

TEST_CASE("evaluation report: JSON by channel, unnamed ones by number") {
  const Json json = to_json(forecast_figures(), {"u10"});
  CHECK(json["samples"].get<int>() == 3);
  CHECK(json["rmse"]["u10"].get<double>() == 0.1);
  CHECK(json["persistence_acc"]["c1"].get<double>() == 0.0);
  CHECK_FALSE(json.contains("top1"));
}

TEST_CASE("evaluation report: a classifier has top-1 and top-5") {
  Evaluation figures;
  figures.samples = 8;
  figures.loss = 1.5;
  figures.top1 = 0.25;
  figures.top5 = 0.875;
  CHECK(table_lines(figures, {}) ==
        std::vector<std::string>{"8 samples, loss 1.500000", "top-1 25.00 %, top-5 87.50 %"});
  CHECK(to_json(figures, {})["top5"].get<double>() == 0.875);
  CHECK_FALSE(to_json(figures, {}).contains("rmse"));
}
