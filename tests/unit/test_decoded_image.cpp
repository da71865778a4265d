// Image files of all kinds as pixels: what was written is read, turned as it says, and damage is named.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "data/tools/convert_images.h"
#include "data/tools/decoded_image.h"
#include "src/base/error.h"
#include "tests/support/image_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

using testing::PngKind;
using testing::TestImage;

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

DecodedImage decode(const std::string& path) {
  return decode_image(read_file(path), path);
}

// Smooth, so that JPEG keeps it.
TestImage slopes(int height, int width, int channels) {
  TestImage image{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        image.values.push_back(static_cast<uint8_t>(c == 0 ? 3 * y : c == 1 ? 2 * x : 100 + y + x));
      }
    }
  }
  return image;
}

// A gray progressive JPEG of 8 x 8 pixels and so many scans, each of a few bytes.
std::vector<uint8_t> progressive_jpeg(int num_scans) {
  std::vector<uint8_t> bytes = {0xff, 0xd8};
  const auto segment = [&](uint8_t marker, const std::vector<uint8_t>& body) {
    bytes.insert(bytes.end(), {0xff, marker, 0, static_cast<uint8_t>(body.size() + 2)});
    bytes.insert(bytes.end(), body.begin(), body.end());
  };
  std::vector<uint8_t> quantization(65, 1);
  quantization[0] = 0;
  segment(0xdb, quantization);
  segment(0xc2, {8, 0, 8, 0, 8, 1, 1, 0x11, 0});
  for (const uint8_t table : {0x00, 0x10}) {  // one code, 0, of one bit: no difference, no coefficients
    std::vector<uint8_t> codes(18, 0);
    codes[0] = table;
    codes[1] = 1;
    segment(0xc4, codes);
  }
  for (int scan = 0; scan < num_scans; ++scan) {
    segment(0xda, {1, 1, 0, static_cast<uint8_t>(scan == 0 ? 0 : 1), static_cast<uint8_t>(scan == 0 ? 0 : 63), 0});
    bytes.push_back(0x7f);
  }
  bytes.insert(bytes.end(), {0xff, 0xd9});
  return bytes;
}

int largest_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(int{a[i]} - int{b[i]}));
  }
  return largest;
}

}  // namespace

TEST_CASE("decoded image: JPEG files of gray, colors and inks") {
  const testing::ScratchFolder folder;
  const TestImage color = slopes(40, 56, 3);
  testing::write_jpeg_file(folder.file("color.jpg"), color);
  const DecodedImage read = decode(folder.file("color.jpg"));
  CHECK(read.height == 40);
  CHECK(read.width == 56);
  CHECK(largest_difference(read.pixels, color.values) <= 6);

  const TestImage gray = slopes(40, 56, 1);
  testing::write_jpeg_file(folder.file("gray.jpg"), gray);
  const DecodedImage read_gray = decode(folder.file("gray.jpg"));
  std::vector<uint8_t> expected;
  for (const uint8_t value : gray.values) {
    expected.insert(expected.end(), 3, value);
  }
  CHECK(largest_difference(read_gray.pixels, expected) <= 3);

  // Inverted inks: color = ink x black / 255.
  TestImage inks{16, 16, 4, {}};
  for (int i = 0; i < 16 * 16; ++i) {
    inks.values.insert(inks.values.end(), {200, 100, 50, 128});
  }
  testing::write_jpeg_file(folder.file("inks.jpg"), inks);
  const DecodedImage read_inks = decode(folder.file("inks.jpg"));
  REQUIRE(read_inks.pixels.size() == 3 * 16 * 16);
  CHECK(std::abs(read_inks.pixels[0] - 100) <= 2);
  CHECK(std::abs(read_inks.pixels[1] - 50) <= 2);
  CHECK(std::abs(read_inks.pixels[2] - 25) <= 2);
}

TEST_CASE("decoded image: PNG files of every kind, exactly") {
  const testing::ScratchFolder folder;
  const auto read = [&](const TestImage& image, PngKind kind, bool is_interlaced) {
    testing::write_png_file(folder.file("x.png"), image, kind, is_interlaced);
    return decode(folder.file("x.png")).pixels;
  };
  for (const bool is_interlaced : {false, true}) {
    const TestImage color = slopes(9, 13, 3);
    CHECK(read(color, PngKind::kColor, is_interlaced) == color.values);
    CHECK(read(color, PngKind::kColor16, is_interlaced) == color.values);
    std::vector<uint8_t> expected;
    const TestImage with_alpha = slopes(9, 13, 4);
    for (size_t i = 0; i < with_alpha.values.size(); i += 4) {
      expected.insert(expected.end(), with_alpha.values.begin() + static_cast<std::ptrdiff_t>(i),
                      with_alpha.values.begin() + static_cast<std::ptrdiff_t>(i) + 3);
    }
    CHECK(read(with_alpha, PngKind::kColorAlpha, is_interlaced) == expected);
    const TestImage gray_alpha = slopes(9, 13, 2);
    expected.clear();
    for (size_t i = 0; i < gray_alpha.values.size(); i += 2) {
      expected.insert(expected.end(), 3, gray_alpha.values[i]);
    }
    CHECK(read(gray_alpha, PngKind::kGrayAlpha, is_interlaced) == expected);
    const TestImage indices = slopes(9, 13, 1);
    expected.clear();
    for (const uint8_t i : indices.values) {
      expected.insert(expected.end(), {i, static_cast<uint8_t>(2 * i), static_cast<uint8_t>(255 - i)});
    }
    CHECK(read(indices, PngKind::kPalette, is_interlaced) == expected);
    TestImage bits{5, 11, 1, {}};
    expected.clear();
    for (int i = 0; i < 55; ++i) {
      bits.values.push_back(i % 3 == 0 ? 1 : 0);
      expected.insert(expected.end(), 3, i % 3 == 0 ? 255 : 0);
    }
    CHECK(read(bits, PngKind::kOneBit, is_interlaced) == expected);
  }
}

TEST_CASE("decoded image: each Exif orientation, in both byte orders") {
  const testing::ScratchFolder folder;
  // Where the stored pixel (0, 0) and the end of the first stored row lie in the upright image (Exif 2.32: "the 0th row
  // is at the visual top, left, ...").
  struct Corner {
    int orientation;
    bool first_is_bottom, first_is_right;  // of stored (0, 0)
    bool row_is_column;                    // stored rows run along upright columns
  };
  for (const Corner& expected :
       {Corner{1, false, false, false}, Corner{2, false, true, false}, Corner{3, true, true, false},
        Corner{4, true, false, false}, Corner{5, false, false, true}, Corner{6, false, true, true},
        Corner{7, true, true, true}, Corner{8, true, false, true}}) {
    CAPTURE(expected.orientation);
    TestImage image{16, 32, 3, std::vector<uint8_t>(3 * 16 * 32, 10)};
    for (size_t y = 0; y < 8; ++y) {  // a white corner at the stored (0, 0)
      for (size_t x = 0; x < 8; ++x) {
        std::fill_n(image.values.begin() + static_cast<std::ptrdiff_t>(3 * (y * 32 + x)), 3, uint8_t{250});
      }
    }
    for (const bool is_little : {false, true}) {
      testing::write_jpeg_file(folder.file("x.jpg"), image, expected.orientation, is_little);
      const DecodedImage stored = decode(folder.file("x.jpg"));
      CHECK(stored.orientation == expected.orientation);
      const DecodedImage turned = upright(stored);
      CHECK(turned.height == (expected.row_is_column ? 32 : 16));
      CHECK(turned.width == (expected.row_is_column ? 16 : 32));
      for (const bool bottom : {false, true}) {
        for (const bool right : {false, true}) {
          const int64_t y = bottom ? turned.height - 3 : 2;
          const int64_t x = right ? turned.width - 3 : 2;
          const bool is_white = turned.pixels[static_cast<size_t>(3 * (y * turned.width + x))] > 128;
          CHECK(is_white == (bottom == expected.first_is_bottom && right == expected.first_is_right));
        }
      }
    }
  }
  CHECK(exif_orientation({}) == 1);
  const std::vector<uint8_t> cut{'E', 'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 200, 0, 0, 0};
  CHECK(exif_orientation(cut) == 1);
}

TEST_CASE("decoded image: damaged and foreign files") {
  const testing::ScratchFolder folder;
  const auto refused = [&](std::vector<uint8_t> bytes, const std::string& text) {
    const Error error = testing::thrown_error([&] { decode_image(bytes, "the/file"); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK(std::string(error.what()).find("the/file") != std::string::npos);
    CHECK(std::string(error.what()).find(text) != std::string::npos);
  };
  testing::write_jpeg_file(folder.file("x.jpg"), slopes(64, 64, 3));
  testing::write_png_file(folder.file("x.png"), slopes(64, 64, 3), PngKind::kColor);
  const auto jpeg = read_file(folder.file("x.jpg"));
  const auto png = read_file(folder.file("x.png"));
  const auto start = [](const std::vector<uint8_t>& bytes, size_t count) {
    return std::vector<uint8_t>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
  };
  refused({}, "neither a JPEG nor a PNG file");
  refused({'G', 'I', 'F', '8', '9', 'a'}, "neither a JPEG nor a PNG file");
  for (const size_t count : {size_t{4}, size_t{20}, jpeg.size() / 2, jpeg.size() - 20}) {
    refused(start(jpeg, count), "JPEG");
  }
  for (const size_t count : {size_t{9}, size_t{30}, png.size() / 2, png.size() - 13}) {
    refused(start(png, count), "truncated");
  }
  auto flipped = png;
  flipped[png.size() / 2] ^= 0x10;
  refused(flipped, "PNG");
}

TEST_CASE("decoded image: a JPEG of very many scans is refused, one of a hundred is read") {
  const DecodedImage read = decode_image(progressive_jpeg(100), "x.jpg");
  CHECK(read.height == 8);
  CHECK(read.pixels == std::vector<uint8_t>(192, 128));
  const Error error = testing::thrown_error([] { decode_image(progressive_jpeg(101), "x.jpg"); });
  CHECK((error.error_class() == ErrorClass::kBadData));
  CHECK(error.message().find("it has more than 100 scans") != std::string::npos);
}

TEST_CASE("stored image: crops of the shorter side and of both") {
  const Crop wide = stored_crop(300, 600, 256, ConvertResize::kShorter);
  CHECK(wide.top == doctest::Approx(0.0));
  CHECK(wide.height == doctest::Approx(300.0));
  CHECK(wide.left == doctest::Approx(150.0));  // 128 of 512 columns
  CHECK(wide.width == doctest::Approx(300.0));
  const Crop both = stored_crop(300, 600, 256, ConvertResize::kBoth);
  CHECK(both.height == doctest::Approx(300.0));
  CHECK(both.width == doctest::Approx(600.0));
  // An image of the size that is stored stays as it is, bit for bit.
  const TestImage image = slopes(32, 32, 3);
  ConvertOptions options;
  options.size = 32;
  for (const auto interpolation : {Interpolation::kBilinear, Interpolation::kBicubic}) {
    options.interpolation = interpolation;
    std::vector<uint8_t> stored(image.values.size());
    store_image({32, 32, image.values, 1}, options, stored);
    CHECK(stored == image.values);
  }
}

}  // namespace vit_hybrid::data
