// libpng's calls between setjmp and longjmp.
#include "data/tools/png_reader.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "data/tools/decoder_stage.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// libpng reports an error by a call that must not return. It jumps over frames of libpng and of the stages below, which
// have nothing to destroy.
struct Session {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf jump{};
  char message[256] = {};
  std::span<const uint8_t> bytes;
  size_t at = 0;
  png_bytepp rows = nullptr;

  Session() = default;
  ~Session() { png_destroy_read_struct(&png, &info, nullptr); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

[[noreturn]] void stop(png_structp png, png_const_charp message) {
  auto& session = *static_cast<Session*>(png_get_error_ptr(png));
  std::snprintf(session.message, sizeof session.message, "%s", message);
  std::longjmp(session.jump, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto& session = *static_cast<Session*>(png_get_io_ptr(png));
  if (count > session.bytes.size() - session.at) {
    png_error(png, "the file is truncated");
  }
  std::memcpy(to, session.bytes.data() + session.at, count);
  session.at += count;
}

void read_header(Session& session) {
  png_structp png = session.png;
  png_set_read_fn(png, &session, &read_bytes);
  png_read_info(png, session.info);
  const int color = png_get_color_type(png, session.info);
  if (color == PNG_COLOR_TYPE_PALETTE) {
    png_set_palette_to_rgb(png);
  }
  if ((color & PNG_COLOR_MASK_COLOR) == 0) {
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
  }
  png_set_scale_16(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, session.info);
}

void read_rows(Session& session) {
  png_read_image(session.png, session.rows);
  png_read_end(session.png, nullptr);
}

void run(Session& session, void (*stage)(Session&), const std::string& path) {
  if (!succeeds(session, stage)) {
    refuse_image(path, "PNG", session.message);
  }
}

}  // namespace

DecodedImage decode_png(std::span<const uint8_t> bytes, const std::string& path) {
  Session session;
  session.bytes = bytes;
  session.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &session, &stop, &ignore_warning);
  session.info = session.png == nullptr ? nullptr : png_create_info_struct(session.png);
  VH_ASSERT(session.info != nullptr, "libpng and its header are of one version");
  run(session, &read_header, path);
  DecodedImage image;
  image.height = png_get_image_height(session.png, session.info);
  image.width = png_get_image_width(session.png, session.info);
  if (image.height * image.width > kMostPixels) {
    refuse_image(path, "PNG", str(image.height, " x ", image.width, " pixels are more than ", kMostPixels));
  }
  const auto row_bytes = static_cast<size_t>(3 * image.width);
  if (png_get_rowbytes(session.png, session.info) != row_bytes) {
    refuse_image(path, "PNG", "its pixels cannot be made red, green and blue");
  }
  image.pixels.resize(row_bytes * static_cast<size_t>(image.height));
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < image.height; ++y) {
    rows.push_back(image.pixels.data() + static_cast<size_t>(y) * row_bytes);
  }
  session.rows = rows.data();
  run(session, &read_rows, path);
  return image;
}

}  // namespace vit_hybrid::data
