// The table of layouts: each axis alone and together, both stages of ZeRO, and over parts of the data axis, both
// schedules, orders of the axes.
#include "tests/support/test_layouts.h"

namespace vit_hybrid::testing {

std::vector<Layout> test_layouts(int num_ranks) {
  using zero::ZeroStage;
  const auto replicated = ZeroStage::kReplicated;
  const auto sharded = ZeroStage::kOptimizerState;
  const std::vector<Layout> all = {
      {1, 1, 1, replicated},
      {1, 1, 1, sharded, "gpipe"},
      {2, 1, 1, sharded},
      {2, 1, 1, replicated},
      {1, 2, 1, sharded},
      {1, 1, 2, sharded},
      {1, 1, 2, sharded, "gpipe"},
      {1, 1, 3, sharded},
      {3, 1, 1, sharded},
      {1, 3, 1, sharded},
      {2, 2, 1, sharded},
      {2, 1, 2, sharded},
      {2, 1, 2, replicated},
      {1, 2, 2, sharded},
      {4, 1, 1, sharded},
      {1, 4, 1, sharded},
      {1, 1, 4, sharded},
      {2, 2, 1, sharded, "1f1b", "dp-tp-pp"},
      {3, 1, 2, sharded},
      {1, 3, 2, sharded},
      {1, 3, 2, replicated, "gpipe"},
      {2, 2, 2, sharded},
      {2, 2, 2, replicated},
      {2, 2, 2, sharded, "gpipe", "pp-tp-dp"},
      {1, 4, 2, sharded},
      {4, 2, 1, sharded},
      {8, 1, 1, sharded},
      {1, 8, 1, sharded},
      {.dp = 4, .shard = 2},
      {.dp = 6, .shard = 3},
      {.dp = 4, .tp = 2, .shard = 2},
  };
  std::vector<Layout> result;
  for (const Layout& layout : all) {
    if (layout.num_ranks() == num_ranks) {
      result.push_back(layout);
    }
  }
  return result;
}

}  // namespace vit_hybrid::testing
