// Canvas: dots into pixels.
#include "data/picture/canvas.h"

#include "data/picture/bitmap_font.h"

namespace vit_hybrid::data {

namespace {

constexpr int kAdvance = kGlyphWidth + 1;  // from one character to the next, in dots

// Calls dot(column, row) for every dot of the text, in dots from its upper left corner.
template <class Dot>
void for_dots(const std::string& text, const Dot& dot) {
  for (size_t i = 0; i < text.size(); ++i) {
    const Glyph& rows = glyph(text[i]);
    for (int row = 0; row < kGlyphHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if ((rows[static_cast<size_t>(row)] >> (kGlyphWidth - 1 - column) & 1) != 0) {
          dot(static_cast<int>(i) * kAdvance + column, row + drop(text[i]));
        }
      }
    }
  }
}

}  // namespace

Canvas::Canvas(int width, int height)
    : pixels_{width, height, std::vector<Rgb>(static_cast<size_t>(width) * static_cast<size_t>(height), kWhite)} {}

void Canvas::set(int x, int y, Rgb color) {
  if (x >= 0 && x < pixels_.width && y >= 0 && y < pixels_.height) {
    pixels_.values[static_cast<size_t>(y) * static_cast<size_t>(pixels_.width) + static_cast<size_t>(x)] = color;
  }
}

void Canvas::fill(int x, int y, int width, int height, Rgb color) {
  for (int row = y; row < y + height; ++row) {
    for (int column = x; column < x + width; ++column) {
      set(column, row, color);
    }
  }
}

void Canvas::frame(int x, int y, int width, int height, Rgb color) {
  fill(x - 1, y - 1, width + 2, 1, color);
  fill(x - 1, y + height, width + 2, 1, color);
  fill(x - 1, y, 1, height, color);
  fill(x + width, y, 1, height, color);
}

void Canvas::text(int x, int y, const std::string& text, int scale, Align align) {
  const int width = text_width(text, scale);
  const int left = align == Align::kLeft ? x : align == Align::kCenter ? x - width / 2 : x - width;
  for_dots(text, [&](int column, int row) { fill(left + column * scale, y + row * scale, scale, scale, kBlack); });
}

void Canvas::text_upwards(int x, int y, const std::string& text, int scale) {
  const int bottom = y + text_width(text, scale) / 2;
  for_dots(text,
           [&](int column, int row) { fill(x + row * scale, bottom - (column + 1) * scale, scale, scale, kBlack); });
}

int text_width(const std::string& text, int scale) {
  return text.empty() ? 0 : (static_cast<int>(text.size()) * kAdvance - 1) * scale;
}

int text_height(int scale) {
  return kGlyphHeight * scale;
}

}  // namespace vit_hybrid::data
