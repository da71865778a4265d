// A small font: 5 x 7 dots for every printable character of ASCII.
#pragma once

#include <array>
#include <cstdint>

namespace vit_hybrid::data {

inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 7;

/// Rows from the top; bit 4 of a row is its leftmost dot.
using Glyph = std::array<uint8_t, kGlyphHeight>;

/// The glyph of a character; a box for what is not printable ASCII.
const Glyph& glyph(char character);

/// Rows by which it hangs below the line: 2 for letters with a tail, else 0.
int drop(char character);

}  // namespace vit_hybrid::data
