// JPEG files as pixels, by libjpeg.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/tools/decoded_image.h"

namespace vit_hybrid::data {

/// Gray, YCbCr, RGB, CMYK and YCCK images as RGB; the orientation is that of the Exif segment. Any thread.
/// Error(kBadData), naming `path`, for damaged, truncated and unknown images.
DecodedImage decode_jpeg(std::span<const uint8_t> bytes, const std::string& path);

}  // namespace vit_hybrid::data
