// The order of tensors in listings.
#include <doctest/doctest.h>

#include <algorithm>

#include "src/checkpoint/verify.h"

namespace vit_hybrid::train {

TEST_CASE("reading order: weights first, blocks by their number") {
  const std::vector<std::string> ordered = {"parameters/blocks.0.norm1.bias",
                                            "parameters/blocks.0.norm2.bias",
                                            "parameters/blocks.2.norm1.bias",
                                            "parameters/blocks.9.norm1.bias",
                                            "parameters/blocks.10.norm1.bias",
                                            "parameters/blocks.100.a",
                                            "parameters/head",
                                            "parameters/head.bias",
                                            "optimizer/exp_avg/blocks.2.a",
                                            "optimizer/exp_avg/blocks.10.a",
                                            "optimizer/exp_avg_sq/blocks.0.a"};
  const auto tensor = [](const std::string& path) { return CheckpointTensor{path, {}, at::kFloat, "", 0}; };
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < ordered.size(); ++j) {
      const auto two = in_reading_order({tensor(ordered[j]), tensor(ordered[i])});
      CHECK_MESSAGE(two.front().path == ordered[std::min(i, j)], ordered[i], " ", ordered[j]);
    }
  }
  std::vector<CheckpointTensor> tensors;
  for (size_t i = ordered.size(); i-- > 0;) {
    tensors.push_back(tensor(ordered[i]));
  }
  const auto sorted = in_reading_order(tensors);
  for (size_t i = 0; i < ordered.size(); ++i) {
    CHECK(sorted[i].path == ordered[i]);
    CHECK(is_parameter(sorted[i]) == (i < 8));
  }
}

}  // namespace vit_hybrid::train
