// TraceSteps: the steps that --trace asks for, and how they are written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/config/option_table.h"

namespace vit_hybrid::train {

/// Steps that a trace is made of, both ends included; 0 to 0: none.
struct TraceSteps {
  int64_t first = 0;
  int64_t last = 0;

  bool any() const { return last > 0; }
  /// As --trace has them: "steps=10-12", or "none".
  std::string text() const;
  /// Nothing where it is neither; "steps=10" is one step.
  static std::optional<TraceSteps> parse(const std::string& text);
};

/// The option's value: "none", or a range.
options::Value step_range(TraceSteps& steps);

}  // namespace vit_hybrid::train
