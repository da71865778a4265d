// Test images, written with libjpeg and libpng; their own errors end the test program.
#include "tests/support/image_files.h"

#include <png.h>

#include <cstdio>
#include <stdexcept>
// It needs <cstdio> before it.
#include <jpeglib.h>

namespace vit_hybrid::testing {

namespace {

std::FILE* create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    throw std::runtime_error("cannot create " + path);
  }
  return file;
}

// A TIFF structure of one entry.
std::vector<uint8_t> exif_segment(int orientation, bool is_little) {
  std::vector<uint8_t> bytes{'E', 'x', 'i', 'f', 0, 0};
  const auto add = [&](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes.push_back(static_cast<uint8_t>(value >> 8 * (is_little ? i : size - 1 - i)));
    }
  };
  bytes.insert(bytes.end(), 2, is_little ? 'I' : 'M');
  add(42, 2);
  add(8, 4);    // the directory
  add(1, 2);    // its entries
  add(274, 2);  // orientation
  add(3, 2);    // of type short
  add(1, 4);    // one
  add(static_cast<uint32_t>(orientation), 2);
  add(0, 2);
  add(0, 4);  // no further directory
  return bytes;
}

struct PngForm {
  int color;
  int bits;
};

PngForm form_of(PngKind kind) {
  switch (kind) {
    case PngKind::kGray:
      return {PNG_COLOR_TYPE_GRAY, 8};
    case PngKind::kGrayAlpha:
      return {PNG_COLOR_TYPE_GRAY_ALPHA, 8};
    case PngKind::kColorAlpha:
      return {PNG_COLOR_TYPE_RGB_ALPHA, 8};
    case PngKind::kPalette:
      return {PNG_COLOR_TYPE_PALETTE, 8};
    case PngKind::kColor16:
      return {PNG_COLOR_TYPE_RGB, 16};
    case PngKind::kOneBit:
      return {PNG_COLOR_TYPE_GRAY, 1};
    default:
      return {PNG_COLOR_TYPE_RGB, 8};
  }
}

std::vector<uint8_t> png_row(const TestImage& image, int y, PngKind kind) {
  const auto count = static_cast<size_t>(image.width * image.channels);
  const uint8_t* from = image.values.data() + static_cast<size_t>(y) * count;
  std::vector<uint8_t> row;
  if (kind == PngKind::kOneBit) {
    row.assign((count + 7) / 8, 0);
    for (size_t i = 0; i < count; ++i) {
      row[i / 8] = static_cast<uint8_t>(row[i / 8] | from[i] << (7 - i % 8));
    }
    return row;
  }
  for (size_t i = 0; i < count; ++i) {
    row.push_back(from[i]);
    if (kind == PngKind::kColor16) {
      row.push_back(from[i]);  // x * 257: 16 bits of the same share as 8 bits of x
    }
  }
  return row;
}

}  // namespace

void write_jpeg_file(const std::string& path, const TestImage& image, int exif_orientation, bool is_little) {
  std::FILE* file = create(path);
  jpeg_error_mgr errors{};
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  jpeg_stdio_dest(&info, file);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : image.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 98, TRUE);
  jpeg_start_compress(&info, TRUE);
  if (exif_orientation != 0) {
    const auto segment = exif_segment(exif_orientation, is_little);
    jpeg_write_marker(&info, JPEG_APP0 + 1, segment.data(), static_cast<unsigned>(segment.size()));
  }
  std::vector<uint8_t> values = image.values;
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = values.data() + info.next_scanline * static_cast<size_t>(image.width * image.channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::fclose(file);
}

void write_png_file(const std::string& path, const TestImage& image, PngKind kind, bool is_interlaced) {
  std::FILE* file = create(path);
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_init_io(png, file);
  const PngForm form = form_of(kind);
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), form.bits,
               form.color, is_interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (kind == PngKind::kPalette) {
    std::vector<png_color> palette;
    for (int i = 0; i < 128; ++i) {
      palette.push_back({static_cast<png_byte>(i), static_cast<png_byte>(2 * i), static_cast<png_byte>(255 - i)});
    }
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  png_write_info(png, info);
  std::vector<std::vector<uint8_t>> rows;
  std::vector<png_bytep> pointers;
  for (int y = 0; y < image.height; ++y) {
    rows.push_back(png_row(image, y, kind));
  }
  for (auto& row : rows) {
    pointers.push_back(row.data());
  }
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  std::fclose(file);
}

}  // namespace vit_hybrid::testing
