// The layouts that the parity tests compare with one process.
#pragma once

#include <vector>

#include "tests/support/training_harness.h"

namespace vit_hybrid::testing {

/// Those of the table that have so many ranks.
std::vector<Layout> test_layouts(int num_ranks);

}  // namespace vit_hybrid::testing
