// The counters of one axis of communication.
#pragma once

#include <string>

#include "parallel/comm/statistics.h"

namespace vit_hybrid::testing {

/// Zeros if the axis was never used.
inline comm::AxisStatistics statistics_of(const std::string& axis) {
  for (const comm::AxisStatistics& found : comm::statistics()) {
    if (found.axis == axis) return found;
  }
  return {};
}

}  // namespace vit_hybrid::testing
