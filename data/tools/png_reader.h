// PNG files as pixels, by libpng.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/tools/decoded_image.h"

namespace vit_hybrid::data {

/// Gray, palette and 16-bit images as 8-bit RGB, transparency left out, as their numbers stand in the file (no gamma).
/// Any thread. Error(kBadData), naming `path`, for damaged and truncated images.
DecodedImage decode_png(std::span<const uint8_t> bytes, const std::string& path);

}  // namespace vit_hybrid::data
