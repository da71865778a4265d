// DecodedImage: the pixels of an image file, and how they are turned upright.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vit_hybrid::data {

struct DecodedImage {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;  ///< [height, width, 3], red, green, blue
  int orientation = 1;          ///< as EXIF has it, 1 to 8: what upright() undoes
};

/// Larger images are refused: a damaged or hostile header must not ask for all of the memory. (ImageNet's largest has
/// 61 million.)
inline constexpr int64_t kMostPixels = int64_t{1} << 26;

/// Longer files too: so many bytes have the pixels at 16 bits a channel.
inline constexpr int64_t kMostImageBytes = 8 * kMostPixels;

/// Turned and mirrored as its orientation says (Exif 2.32, tag 274); then orientation 1.
DecodedImage upright(DecodedImage image);

/// The orientation in an Exif segment ("Exif\0\0" and a TIFF header); 1 where it is not there or makes no sense.
int exif_orientation(std::span<const uint8_t> segment);

/// Decodes the bytes of a JPEG or PNG file, whichever they are, whatever their name: gray, palette, 16-bit and CMYK
/// images become 8-bit RGB, transparency is left out. Any thread. Error(kBadData), naming `path`, for other and damaged
/// bytes.
DecodedImage decode_image(std::span<const uint8_t> bytes, const std::string& path);

}  // namespace vit_hybrid::data
