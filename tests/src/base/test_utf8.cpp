// Well-formed UTF-8, by the examples of the Unicode standard (chapter 3.9) and by all pairs of bytes.
#include <doctest/doctest.h>

#include <string>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/sources.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::options {

TEST_CASE("utf8: well-formed text, and where it ends") {
  for (const std::string good : {"", "a\tb\r\nc", "caf\xc3\xa9", "\xe4\xba\x8c", "\xf0\x90\x8c\x82", "\xf4\x8f\xbf\xbf",
                                 "\xef\xbb\xbfk: 1", "\xed\x9f\xbf", "\xee\x80\x80"}) {
    CHECK_MESSAGE(find_no_text(good) == good.size(), good);
  }
  for (const std::string bad :
       {"\xc3", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\x80", "\xed\xa0\x80", "\xf0\x8f\x80\x80", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "\x80", "\xe4\xba", "\xe4\xba\x41", "\xf0\x90\x8c", "\x01", "\x04", "\x7f"}) {
    CHECK(find_no_text("ab" + bad) == 2);
  }
  CHECK(find_no_text(std::string("a\0b", 3)) == 1);
}

TEST_CASE("utf8: of all pairs of bytes, those of two ASCII characters or one of two bytes") {
  int count = 0;
  for (int a = 0x80; a < 0x100; ++a) {
    for (int b = 0; b < 0x100; ++b) {
      count += find_no_text(std::string{static_cast<char>(a), static_cast<char>(b)}) == 2 ? 1 : 0;
    }
  }
  CHECK(count == 30 * 64);  // U+0080 to U+07FF
}

TEST_CASE("utf8: a configuration that is no text is refused with its line") {
  for (const char* content : {"a: &a {seed: 1}\nc:\n  <<: [*a, *b\xf3", "seed: 1\nlr: 2\nname: \x04 rest\n"}) {
    const Error error = testing::thrown_error([&] { parse_yaml({"f.yaml", ""}, content); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK(error.message().starts_with("f.yaml:3: this is not YAML"));
  }
}

TEST_CASE("yaml: what comes behind the first document is refused, whatever it is") {
  for (const char* content :
       {", run\nseed: 1\n", "\"a\"\n, b: 1\n", "seed: 1\n---\nseed: 2\n", "seed: 1\n...\nseed: 2\n"}) {
    const Error error = testing::thrown_error([&] { parse_yaml({"f.yaml", ""}, content); });
    CHECK_MESSAGE((error.error_class() == ErrorClass::kBadData), content);
  }
}

TEST_CASE("utf8: what is printed does nothing to a terminal, and all that is text stays") {
  CHECK(printable("caf\xc3\xa9 \xe4\xba\x8c\n\tx") == "caf\xc3\xa9 \xe4\xba\x8c\n\tx");
  CHECK(printable("a\x1b[31mb\x7f\r") == "a\\x1b[31mb\\x7f\\r");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\u009b31m");  // C1's CSI
  CHECK(printable("\xe2\x80\xae"
                  "cod.exe") == "\\u202ecod.exe");  // right-to-left override
  CHECK(printable("\xf3\xa0\x80\x81") == "\\U000e0001");
  CHECK(printable("a\xff\xc3") == "a\\xff\\xc3");
  CHECK(printable(std::string(100, 'x'), 10) == "xxxxxxxxxx... (100 bytes)");
}

TEST_CASE("utf8: a value in a message is one line, and not endless") {
  CHECK(shown("two\nvit_hybrid: lines\t") == "two\\nvit_hybrid: lines\\t");
  CHECK(shown(std::string(1 << 20, 'y')) == str(std::string(200, 'y'), "... (1048576 bytes)"));
  CHECK(shown("") == "");
}

}  // namespace vit_hybrid::options
