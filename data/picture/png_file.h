// PNG files of RGB pixels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

/// A pixel: red, green, blue.
struct Rgb {
  uint8_t r = 0;
  uint8_t g = 0;
  uint8_t b = 0;
  bool operator==(const Rgb&) const = default;
};

/// A picture, row by row from the top.
struct Pixels {
  int width = 0;
  int height = 0;
  std::vector<Rgb> values;  ///< width x height
};

/// Writes the picture under a temporary name and renames it: the file is complete or not there. Error(kCannotCreate),
/// Error(kIo).
void write_png(const std::string& path, const Pixels& pixels);

}  // namespace vit_hybrid::data
