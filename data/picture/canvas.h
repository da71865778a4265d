// Canvas: text, lines and rectangles on a picture.
#pragma once

#include <string>

#include "data/picture/png_file.h"

namespace vit_hybrid::data {

/// Where the given point of a text lies: at its left end, its middle, or its right end.
enum class Align { kLeft, kCenter, kRight };

inline constexpr Rgb kBlack{0, 0, 0};
inline constexpr Rgb kWhite{255, 255, 255};

/// A white picture to draw on. x goes to the right, y down, both from 0; what lies outside is cut off.
class Canvas {
 public:
  Canvas(int width, int height);

  const Pixels& pixels() const { return pixels_; }
  void set(int x, int y, Rgb color);
  void fill(int x, int y, int width, int height, Rgb color);
  /// The outline of a rectangle, one pixel wide, just around it.
  void frame(int x, int y, int width, int height, Rgb color);
  /// Text of one line whose top is at y, each dot of the font a square of `scale` pixels.
  void text(int x, int y, const std::string& text, int scale, Align align);
  /// The same, read from bottom to top: x is its left side, y its middle.
  void text_upwards(int x, int y, const std::string& text, int scale);

 private:
  Pixels pixels_;
};

/// Extent of a text in pixels.
int text_width(const std::string& text, int scale);
int text_height(int scale);

}  // namespace vit_hybrid::data
