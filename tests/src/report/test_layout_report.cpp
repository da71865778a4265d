// The start report's lines on the layout: uneven parts one by one, many of them by their sizes.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "src/report/start_report.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

train::RunConfig config_of(int dp, int tp, int pp) {
  train::RunConfig config;
  config.model.depth = 46;
  config.model.num_heads = 72;
  config.model.mlp_hidden = 3072;
  config.parallel.dp = dp;
  config.parallel.tp = tp;
  config.parallel.pp = pp;
  config.global_batch_size = 72;
  config.parallel.micro_batch_size = 1;
  return config;
}

std::vector<std::string> lines_of(const train::RunConfig& config) {
  return train::report_layout(config, config.data, {}).lines();
}

}  // namespace

TEST_CASE("layout report: a few parts are listed") {
  const auto lines = lines_of(config_of(5, 3, 2));
  CHECK(contains(lines[0], "samples 14 + 14 + 15 + 14 + 15 of a step: balance 96.0 %"));
  CHECK(contains(lines[1], "heads 24 + 24 + 24, MLP features 1024 + 1024 + 1024: balance 100.0 %"));
  CHECK(contains(lines[2], "embedding + blocks 0-"));
}

TEST_CASE("node report: what leaves a node, the order in which less does, and a tensor group that spans nodes") {
  train::RunConfig config = config_of(4, 2, 1);
  CHECK(train::report_nodes(config, {8}, {8}, at::kCPU).lines.empty());
  CHECK(train::report_nodes(config, {8}, {8}, at::kCUDA).lines.empty());
  const auto in_blocks = train::report_nodes(config, {8}, {4, 4}, at::kCPU);
  REQUIRE(in_blocks.lines.size() == 1);
  CHECK(in_blocks.lines[0] == "  sums      in blocks of 4 + 4 ranks");
  const auto two = train::report_nodes(config, {4, 4}, {4, 4}, at::kCPU);
  REQUIRE(two.lines.size() == 2);
  CHECK(contains(two.lines[0], "  nodes     of 4 + 4 ranks; out of each in a step: data "));
  CHECK_FALSE(contains(two.lines[0], "--order"));
  CHECK(contains(two.lines[1], "ranks, the nodes: each sends its ranks' sum"));
  CHECK(two.warning.empty());
  CHECK(contains(train::report_nodes(config, {4, 4}, {8}, at::kCPU).lines[1], "which are not the nodes: every rank"));
  config.parallel.order = "dp-tp-pp";
  const auto tensor = train::report_nodes(config, {4, 4}, {4, 4}, at::kCPU);
  CHECK(contains(tensor.lines[0], "out of each in a step: tensor "));
  CHECK(contains(tensor.lines[0], "; with --order tp-"));
  CHECK(contains(tensor.warning, "tensor groups span nodes (--tp 2, --order dp-tp-pp, nodes of 4 + 4 ranks)"));
}

TEST_CASE("layout report: 48 replicas, tensor ranks or stages are not listed one by one") {
  CHECK(contains(lines_of(config_of(48, 1, 1))[0], "samples 24 x 2 + 24 x 1 of a step: balance 75.0 %"));
  CHECK(contains(lines_of(config_of(1, 48, 1))[1], "heads 24 x 2 + 24 x 1, MLP features 48 x 64: balance"));
  for (const std::string& line : lines_of(config_of(1, 1, 16))) {
    CAPTURE(line);
    CHECK(std::count(line.begin(), line.end(), '|') <= 2);
    CHECK(line.size() < 120);
  }
  const train::KernelReport report{{}, train::padded_dims(config_of(1, 48, 1).model, 48, {128, 1, 1, 1})};
  REQUIRE_FALSE(report.padded.empty());
  for (const std::string& line : report.lines()) {
    CHECK(line.size() < 172);
  }
}
