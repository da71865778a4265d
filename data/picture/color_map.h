// ColorMap: from a number in [0, 1] to a colour.
#pragma once

#include <span>

#include "data/picture/png_file.h"

namespace vit_hybrid::data {

/// Colours at equal distances, with straight lines between them in RGB.
class ColorMap {
 public:
  explicit constexpr ColorMap(std::span<const Rgb> points) : points_(points) {}

  /// The colour at `position`, clamped to [0, 1]; kNoValue where it is not a number.
  Rgb at(double position) const;

 private:
  std::span<const Rgb> points_;
};

/// What has no value: a grey that is in none of the maps.
inline constexpr Rgb kNoValue{160, 160, 160};

/// From dark blue over green to yellow, perceptually uniform: matplotlib's viridis (S. van der Walt, N. Smith, 2015).
extern const ColorMap kViridis;
/// From blue over white to red, for differences: ColorBrewer's RdBu (C. Brewer), reversed.
extern const ColorMap kBlueWhiteRed;

}  // namespace vit_hybrid::data
