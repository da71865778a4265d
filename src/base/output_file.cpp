// Looks at what has the name of a file to be written, without opening it.
#include "src/base/output_file.h"

#include <filesystem>
#include <system_error>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid {

namespace fs = std::filesystem;

void refuse_existing(const std::string& path, bool overwrite, const std::string& option) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  if (there.type() == fs::file_type::none) {
    throw Error(ErrorClass::kCannotCreate, str("cannot create '", path, "': ", error.message()));
  }
  if (!fs::exists(there)) {
    return;
  }
  if (!fs::is_regular_file(there)) {
    throw Error(ErrorClass::kCannotCreate, str(option, " is '", path, "', which is there and is no regular file"),
                "give the name of a file");
  }
  if (!overwrite) {
    throw Error(ErrorClass::kCannotCreate, str("'", path, "' is there already"),
                "give --overwrite to replace it, or another " + option);
  }
}

void refuse_input(const std::string& path, const std::string& option, const std::string& input) {
  std::error_code ignored;
  if (fs::equivalent(path, input, ignored)) {
    throw Error(ErrorClass::kUsage, str(option, " is '", path, "', which is what is read"), "give another " + option);
  }
}

}  // namespace vit_hybrid
