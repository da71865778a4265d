// JPEG and PNG files of every kind, written with the libraries for tests of reading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::testing {

/// Values [height, width, channels].
struct TestImage {
  int height = 0;
  int width = 0;
  int channels = 3;
  std::vector<uint8_t> values;
};

/// Of one channel (gray), three (colors) or four (inks, stored inverted and marked so, as Adobe's programs do), with
/// the Exif orientation if it is not 0; `is_little` says in which byte order.
void write_jpeg_file(const std::string& path, const TestImage& image, int exif_orientation = 0, bool is_little = true);

enum class PngKind { kGray, kGrayAlpha, kColor, kColorAlpha, kPalette, kColor16, kOneBit };

/// The channels of `image` are those of the kind: 1, 2, 3, 4, 1 (index into gray levels i, 2 i, 255 - i), 3 (the upper
/// bytes), 1 (0 or 1).
void write_png_file(const std::string& path, const TestImage& image, PngKind kind, bool is_interlaced = false);

}  // namespace vit_hybrid::testing
