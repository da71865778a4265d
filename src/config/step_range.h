// StepRange: some steps of a run, one after the other, and how options name them.
#pragma once

#include <cstdint>
#include <string>

#include "src/config/option_table.h"

namespace vit_hybrid::train {

/// Steps counted from the start of the run, both ends included; 0 to 0: none.
struct StepRange {
  int64_t first = 0;
  int64_t last = 0;

  bool any() const { return last > 0; }
  /// "10-12", "10" of one step, or "none".
  std::string text() const;
};

/// An option's value: "none", or `head` and a range.
options::Value step_range(StepRange& steps, const std::string& head = {});

}  // namespace vit_hybrid::train
