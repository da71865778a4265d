// The choice of the decoder, and orientation.
#include "data/tools/decoded_image.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/tools/jpeg_decoder.h"
#include "data/tools/png_reader.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

using Place = std::pair<int64_t, int64_t>;

// Where the pixel (y, x) of the upright image lies in the stored one of this height and width.
Place stored_place(int orientation, int64_t y, int64_t x, int64_t height, int64_t width) {
  switch (orientation) {
    case 2:
      return {y, width - 1 - x};
    case 3:
      return {height - 1 - y, width - 1 - x};
    case 4:
      return {height - 1 - y, x};
    case 5:
      return {x, y};
    case 6:
      return {height - 1 - x, y};
    case 7:
      return {height - 1 - x, width - 1 - y};
    case 8:
      return {x, width - 1 - y};
    default:
      return {y, x};
  }
}

// Integers of a TIFF structure in its own byte order; 0 behind its end.
class TiffReader {
 public:
  explicit TiffReader(std::span<const uint8_t> bytes) : bytes_(bytes), little_(!bytes.empty() && bytes[0] == 'I') {}
  uint32_t integer(size_t offset, size_t size) const {
    uint32_t value = 0;
    if (offset > bytes_.size() || bytes_.size() - offset < size) {
      return 0;
    }
    for (size_t i = 0; i < size; ++i) {
      value = value << 8 | bytes_[offset + (little_ ? size - 1 - i : i)];
    }
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool little_;
};

bool starts_with(std::span<const uint8_t> bytes, std::span<const uint8_t> start) {
  return bytes.size() >= start.size() && std::equal(start.begin(), start.end(), bytes.begin());
}

constexpr std::array<uint8_t, 3> kJpegStart{0xff, 0xd8, 0xff};
constexpr std::array<uint8_t, 8> kPngStart{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr std::array<uint8_t, 6> kExifStart{'E', 'x', 'i', 'f', 0, 0};

}  // namespace

DecodedImage upright(DecodedImage image) {
  if (image.orientation < 2 || image.orientation > 8) {
    image.orientation = 1;
    return image;
  }
  const bool is_turned = image.orientation >= 5;
  DecodedImage result{is_turned ? image.width : image.height, is_turned ? image.height : image.width, {}, 1};
  result.pixels.resize(image.pixels.size());
  auto to = result.pixels.begin();
  for (int64_t y = 0; y < result.height; ++y) {
    for (int64_t x = 0; x < result.width; ++x) {
      const auto [row, column] = stored_place(image.orientation, y, x, image.height, image.width);
      to = std::copy_n(image.pixels.begin() + 3 * (row * image.width + column), 3, to);
    }
  }
  return result;
}

int exif_orientation(std::span<const uint8_t> segment) {
  constexpr size_t kEntryBytes = 12;
  constexpr uint32_t kOrientationTag = 274;
  if (!starts_with(segment, kExifStart)) {
    return 1;
  }
  const TiffReader tiff(segment.subspan(kExifStart.size()));
  const size_t directory = tiff.integer(4, 4);
  const uint32_t num_entries = tiff.integer(directory, 2);
  for (size_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (tiff.integer(entry, 2) == kOrientationTag) {
      const uint32_t value = tiff.integer(entry + 8, 2);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  }
  return 1;
}

DecodedImage decode_image(std::span<const uint8_t> bytes, const std::string& path) {
  if (starts_with(bytes, kJpegStart)) {
    return decode_jpeg(bytes, path);
  }
  if (starts_with(bytes, kPngStart)) {
    return decode_png(bytes, path);
  }
  throw Error(ErrorClass::kBadData, str(path, " of ", bytes.size(), " bytes is neither a JPEG nor a PNG file"),
              "convert it, remove it, or leave such files out with --skip-bad");
}

}  // namespace vit_hybrid::data
