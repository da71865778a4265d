// Where a text stops being one: bytes that are no UTF-8, and control characters.
#pragma once

#include <cstddef>
#include <string_view>

namespace vit_hybrid::options {

/// Position of the first byte that does not belong to a character of well-formed UTF-8 (Unicode 15, table 3-7), or is a
/// control character other than tab, line feed and carriage return; text.size() without one.
size_t find_no_text(std::string_view text);

}  // namespace vit_hybrid::options
