// ColorMap: the tables and the lines between their points.
#include "data/picture/color_map.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace vit_hybrid::data {

namespace {

constexpr std::array<Rgb, 11> kViridisPoints = {{{68, 1, 84},
                                                 {72, 36, 117},
                                                 {65, 68, 135},
                                                 {53, 95, 141},
                                                 {42, 120, 142},
                                                 {33, 145, 140},
                                                 {34, 168, 132},
                                                 {68, 191, 112},
                                                 {122, 209, 81},
                                                 {189, 223, 38},
                                                 {253, 231, 37}}};

constexpr std::array<Rgb, 11> kBlueWhiteRedPoints = {{{5, 48, 97},
                                                      {33, 102, 172},
                                                      {67, 147, 195},
                                                      {146, 197, 222},
                                                      {209, 229, 240},
                                                      {247, 247, 247},
                                                      {253, 219, 199},
                                                      {244, 165, 130},
                                                      {214, 96, 77},
                                                      {178, 24, 43},
                                                      {103, 0, 31}}};

uint8_t between(uint8_t a, uint8_t b, double part) {
  return static_cast<uint8_t>(std::lround(a + (static_cast<double>(b) - a) * part));
}

}  // namespace

const ColorMap kViridis(kViridisPoints);
const ColorMap kBlueWhiteRed(kBlueWhiteRedPoints);

Rgb ColorMap::at(double position) const {
  if (std::isnan(position)) {
    return kNoValue;
  }
  const double place = std::clamp(position, 0.0, 1.0) * static_cast<double>(points_.size() - 1);
  const auto first = std::min(static_cast<size_t>(place), points_.size() - 2);
  const double part = place - static_cast<double>(first);
  const Rgb& a = points_[first];
  const Rgb& b = points_[first + 1];
  return {between(a.r, b.r, part), between(a.g, b.g, part), between(a.b, b.b, part)};
}

}  // namespace vit_hybrid::data
