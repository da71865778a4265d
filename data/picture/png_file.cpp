// PNG files: libpng's simplified interface, into memory and from there into the file.
#include "data/picture/png_file.h"

#include <png.h>

#include "data/reading/posix_file.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

static_assert(sizeof(Rgb) == 3, "rows of pixels are rows of bytes");

std::vector<char> encode(const Pixels& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(pixels.width);
  image.height = static_cast<png_uint_32>(pixels.height);
  image.format = PNG_FORMAT_RGB;
  std::vector<char> bytes(PNG_IMAGE_PNG_SIZE_MAX(image));
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.values.data(), 0, nullptr) == 0) {
    throw Error(ErrorClass::kInternal, str("libpng cannot encode ", pixels.width, " x ", pixels.height,
                                           " pixels: ", static_cast<const char*>(image.message)));
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace

void write_png(const std::string& path, const Pixels& pixels) {
  VH_ASSERT(pixels.values.size() == static_cast<size_t>(pixels.width) * static_cast<size_t>(pixels.height),
            str(pixels.values.size(), " pixels of ", pixels.width, " x ", pixels.height));
  const std::vector<char> bytes = encode(pixels);
  PosixFile file(temporary_name(path), PosixFile::Access::kCreate);
  file.write(0, bytes.data(), static_cast<int64_t>(bytes.size()));
  file.close();
  rename_file(temporary_name(path), path);
}

}  // namespace vit_hybrid::data
