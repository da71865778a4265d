// UTF-8: where a text stops being one, and how text of files and users is shown: no control characters, no endless
// names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vit_hybrid {

/// Position of the first byte that does not belong to a character of well-formed UTF-8 (Unicode 15, table 3-7), or is a
/// control character other than tab, line feed and carriage return; text.size() without one.
size_t find_no_text(std::string_view text);

/// What goes to a terminal or a log: `text` with everything but line feeds, tabs and visible characters of UTF-8
/// written as "\x1b" (bytes) or "\u202e" (characters that change the order or the place of others), and with no more
/// than `most` bytes of it, which it then says.
std::string printable(std::string_view text, size_t most = 65536);

/// One value of a file or of a user inside of a message: printable() in one line (a line feed is "\n"), cut after about
/// `most` bytes, with its length: "abc... (1048576 bytes)".
std::string shown(std::string_view text, size_t most = 200);

}  // namespace vit_hybrid
