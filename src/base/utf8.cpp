// UTF-8: the tables of the standard, and escapes.
#include "src/base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "src/base/text.h"

namespace vit_hybrid {

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

uint32_t code_point(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first;
  uint32_t code = first & (0x7fU >> character.size());
  for (const char byte : character.substr(1)) {
    code = code << 6U | (static_cast<unsigned char>(byte) & 0x3fU);
  }
  return code;
}

struct CodeRange {
  uint32_t first;
  uint32_t last;
};

// C1 controls, and what moves, hides or turns round the text beside it.
constexpr CodeRange kInvisible[] = {
    {0x80, 0x9f},     {0x61c, 0x61c},   {0x200b, 0x200b}, {0x200e, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
};

bool is_invisible(uint32_t code) {
  return std::any_of(std::begin(kInvisible), std::end(kInvisible),
                     [&](const CodeRange& range) { return range.first <= code && code <= range.last; });
}

std::string hexadecimal(const char* format, uint32_t code) {
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), format, code);
  return buffer;
}

enum class Lines { kSeveral, kOne };

// The first character of `text`, or byte where there is none, as it is shown; takes it off the text.
std::string next_shown(std::string_view& text, Lines lines) {
  const size_t length = character_length(text);
  const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
  text.remove_prefix(character.size());
  if (lines == Lines::kOne && character == "\n") return "\\n";
  if (lines == Lines::kOne && character == "\t") return "\\t";
  if (character == "\r") return "\\r";
  if (length == 0) return hexadecimal("\\x%02x", static_cast<unsigned char>(character[0]));
  const uint32_t code = code_point(character);
  return is_invisible(code) ? hexadecimal(code < 0x10000 ? "\\u%04x" : "\\U%08x", code) : std::string(character);
}

std::string shown_text(std::string_view text, Lines lines, size_t most) {
  std::string out;
  std::string_view rest = text;
  while (!rest.empty() && out.size() < most) {
    out += next_shown(rest, lines);
  }
  return rest.empty() ? out : str(out, "... (", text.size(), " bytes)");
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

std::string printable(std::string_view text, size_t most) {
  return shown_text(text, Lines::kSeveral, most);
}

std::string shown(std::string_view text, size_t most) {
  return shown_text(text, Lines::kOne, most);
}

}  // namespace vit_hybrid
