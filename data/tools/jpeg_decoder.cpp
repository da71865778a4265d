// libjpeg's calls between setjmp and longjmp, and inks as colours.
#include "data/tools/jpeg_decoder.h"

#include <csetjmp>
#include <cstdio>
#include <cstring>
// These need <cstdio> before them.
#include <jpeglib.h>

#include <jerror.h>

#include "data/tools/decoder_stage.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr unsigned kWholeMarker = 0xffff;
constexpr int kMostScans = 100;  // programs write about ten

// libjpeg reports an error by a call that must not return. It jumps over frames of libjpeg and of the stages below,
// which have nothing to destroy.
struct Session {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = {};
  bool is_truncated = false;
  std::span<const uint8_t> bytes;
  uint8_t* rows = nullptr;
  size_t row_bytes = 0;

  Session() = default;
  ~Session() { jpeg_destroy_decompress(&info); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

Session& session_of(j_common_ptr info) {
  return *static_cast<Session*>(info->client_data);
}

[[noreturn]] void stop(j_common_ptr info) {
  Session& session = session_of(info);
  info->err->format_message(info, session.message);
  std::longjmp(session.jump, 1);
}

// Most warnings are of no consequence; an image that ends early is gray from there on.
void note_warning(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) {
    Session& session = session_of(info);
    session.is_truncated = true;
    info->err->format_message(info, session.message);
  }
}

void print_nothing(j_common_ptr) {}

// A few bytes are a scan of a progressive image, and each scan goes over all of its blocks.
void count_scans(j_common_ptr info) {
  Session& session = session_of(info);
  if (session.info.input_scan_number > kMostScans) {
    std::snprintf(session.message, sizeof session.message, "it has more than %d scans", kMostScans);
    std::longjmp(session.jump, 1);
  }
}

void read_header(Session& session) {
  jpeg_create_decompress(&session.info);
  session.progress.progress_monitor = &count_scans;
  session.info.progress = &session.progress;
  jpeg_save_markers(&session.info, kExifMarker, kWholeMarker);
  jpeg_mem_src(&session.info, session.bytes.data(), static_cast<unsigned long>(session.bytes.size()));
  jpeg_read_header(&session.info, TRUE);
  const J_COLOR_SPACE stored = session.info.jpeg_color_space;
  session.info.out_color_space = stored == JCS_CMYK || stored == JCS_YCCK ? JCS_CMYK : JCS_RGB;
  jpeg_calc_output_dimensions(&session.info);
}

void read_rows(Session& session) {
  jpeg_start_decompress(&session.info);
  while (session.info.output_scanline < session.info.output_height) {
    JSAMPROW row = session.rows + session.info.output_scanline * session.row_bytes;
    jpeg_read_scanlines(&session.info, &row, 1);
  }
  jpeg_finish_decompress(&session.info);
}

void run(Session& session, void (*stage)(Session&), const std::string& path) {
  if (!succeeds(session, stage) || session.is_truncated) {
    refuse_image(path, "JPEG", session.message);
  }
}

int orientation_of(const jpeg_decompress_struct& info) {
  for (const auto* marker = info.marker_list; marker != nullptr; marker = marker->next) {
    if (marker->marker == kExifMarker) {
      return exif_orientation({marker->data, marker->data_length});
    }
  }
  return 1;
}

// Adobe's programs store inks inverted: 255 is none.
std::vector<uint8_t> colors_of_inks(const std::vector<uint8_t>& inks, bool are_inverted) {
  std::vector<uint8_t> colors;
  colors.reserve(inks.size() / 4 * 3);
  const auto light = [&](uint8_t ink) { return are_inverted ? ink : 255 - ink; };
  for (size_t i = 0; i < inks.size(); i += 4) {
    for (size_t c = 0; c < 3; ++c) {
      colors.push_back(static_cast<uint8_t>((light(inks[i + c]) * light(inks[i + 3]) + 127) / 255));
    }
  }
  return colors;
}

}  // namespace

DecodedImage decode_jpeg(std::span<const uint8_t> bytes, const std::string& path) {
  Session session;
  session.bytes = bytes;
  session.info.err = jpeg_std_error(&session.errors);
  session.info.client_data = &session;
  session.errors.error_exit = &stop;
  session.errors.emit_message = &note_warning;
  session.errors.output_message = &print_nothing;
  run(session, &read_header, path);
  DecodedImage image;
  image.height = session.info.output_height;
  image.width = session.info.output_width;
  image.orientation = orientation_of(session.info);  // before the end of decoding forgets the markers
  if (image.height * image.width > kMostPixels) {
    refuse_image(path, "JPEG", str(image.height, " x ", image.width, " pixels are more than ", kMostPixels));
  }
  session.row_bytes = static_cast<size_t>(session.info.out_color_components) * static_cast<size_t>(image.width);
  image.pixels.resize(session.row_bytes * static_cast<size_t>(image.height));
  session.rows = image.pixels.data();
  run(session, &read_rows, path);
  if (session.info.out_color_space == JCS_CMYK) {
    image.pixels = colors_of_inks(image.pixels, session.info.saw_Adobe_marker != FALSE);
  }
  return image;
}

}  // namespace vit_hybrid::data
