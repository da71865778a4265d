// Well-formed UTF-8.
#include "src/train/options/utf8.h"

namespace vit_hybrid::options {

namespace {

bool is_between(unsigned char byte, unsigned char least, unsigned char most) {
  return least <= byte && byte <= most;
}

// Bytes behind the first one of a character, and the range of the second.
struct Lead {
  size_t num_more;
  unsigned char least = 0x80;
  unsigned char most = 0xbf;
};

// Not a lead byte: num_more is 9.
Lead lead_of(unsigned char byte) {
  switch (byte) {
    case 0xe0:
      return {2, 0xa0, 0xbf};  // below it would be a longer form
    case 0xed:
      return {2, 0x80, 0x9f};  // above it are surrogates
    case 0xf0:
      return {3, 0x90, 0xbf};
    case 0xf4:
      return {3, 0x80, 0x8f};  // above it is nothing
    default:
      break;
  }
  if (is_between(byte, 0xc2, 0xdf)) return {1};
  if (is_between(byte, 0xe1, 0xef)) return {2};
  return {is_between(byte, 0xf1, 0xf3) ? size_t{3} : size_t{9}};
}

// Length of the character at the beginning, 0 if there is none.
size_t character_length(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) {
    const bool is_control = (first < 0x20 && first != '\t' && first != '\n' && first != '\r') || first == 0x7f;
    return is_control ? 0 : 1;
  }
  const Lead lead = lead_of(first);
  if (lead.num_more >= text.size() || !is_between(at(1), lead.least, lead.most)) {
    return 0;
  }
  for (size_t i = 2; i <= lead.num_more; ++i) {
    if (!is_between(at(i), 0x80, 0xbf)) return 0;
  }
  return 1 + lead.num_more;
}

}  // namespace

size_t find_no_text(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = character_length(text.substr(at));
    if (length == 0) {
      return at;
    }
    at += length;
  }
  return at;
}

}  // namespace vit_hybrid::options
