// Round numbers on an axis. Pure.
#pragma once

#include <string>
#include <vector>

namespace vit_hybrid::data {

struct Tick {
  double value = 0.0;
  std::string label;
};

/// At most `most` (2 or more) multiples of 1, 2 or 5 times a power of ten in [low, high], low < high, both finite, with
/// labels that tell them apart.
std::vector<Tick> ticks(double low, double high, int most);

/// A number with about three digits for people.
std::string short_number(double value);

}  // namespace vit_hybrid::data
