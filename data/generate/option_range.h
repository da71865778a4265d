// Checks of generators' options: one line of text for each value out of its range.
#pragma once

#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

/// Collects what is wrong with the options of one command.
class OptionProblems {
 public:
  /// Notes `value` if it is not in [lowest, highest]; nan is in no range.
  template <class Number>
  void check(const char* name, Number value, Number lowest, Number highest) {
    if (!(value >= lowest && value <= highest)) {
      lines_.push_back(str(name, " is ", value, ", allowed is ", lowest, " to ", highest));
    }
  }
  bool none() const { return lines_.empty(); }
  /// Error(kUsage) with all lines, if there are any.
  void throw_if_any() const {
    if (!none()) throw Error(ErrorClass::kUsage, join(lines_, "\n"));
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace vit_hybrid::data
