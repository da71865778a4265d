// Files of users: regular ones of a bounded length, and everything else at once refused.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "src/base/error.h"
#include "src/base/text_file.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid {

TEST_CASE("text file: what is read, and what is refused without waiting") {
  const std::string folder = (std::filesystem::temp_directory_path() / "vit_hybrid_test_text_file").string();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::string content("a\0b\n", 4);
  content.resize(100004, 'x');
  std::ofstream(folder + "/file") << content;
  CHECK(read_text_file(folder + "/file", 1 << 20) == content);
  CHECK(read_text_file(folder + "/file", static_cast<int64_t>(content.size())) == content);
  REQUIRE(mkfifo((folder + "/fifo").c_str(), 0600) == 0);
  struct Case {
    std::string path;
    ErrorClass error_class;
    const char* message;
  };
  for (const Case& c :
       {Case{folder + "/file", ErrorClass::kBadData, "it is longer than 1000 bytes"},
        Case{folder + "/none", ErrorClass::kMissingInput, "No such file"},
        Case{folder, ErrorClass::kMissingInput, "': it is a folder"},
        Case{folder + "/fifo", ErrorClass::kMissingInput, "/fifo': it is a FIFO, no file"},
        Case{"/dev/zero", ErrorClass::kMissingInput, "cannot read '/dev/zero': it is a device, no file"}}) {
    const Error error = testing::thrown_error([&] { read_text_file(c.path, 1000, "the hint"); });
    CHECK((error.error_class() == c.error_class));
    CHECK_MESSAGE(testing::contains(error.what(), c.message), error.what());
    CHECK(error.hint() == (c.error_class == ErrorClass::kMissingInput ? "the hint" : ""));
  }
  CHECK(!read_text_file("/proc/self/status", 1 << 20).empty());  // of a length that nobody knows
  std::filesystem::remove_all(folder);
}

}  // namespace vit_hybrid
