// Making of folders and free space.
#include "data/tools/output_place.h"

#include <filesystem>
#include <system_error>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace fs = std::filesystem;

void make_output_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder, error)) {
    throw Error(ErrorClass::kCannotCreate,
                str("cannot create the folder ", folder, ": ", error ? error.message() : "a file has its name"),
                "check the path and its permissions");
  }
}

std::string existing_part(const std::string& folder) {
  std::error_code ignored;
  fs::path path = fs::absolute(folder.empty() ? "." : folder, ignored);
  while (!fs::exists(path, ignored) && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path.string();
}

void check_room(const std::string& folder, int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(existing_part(folder), error);
  if (!error && space.available < static_cast<std::uintmax_t>(bytes)) {
    throw Error(ErrorClass::kCannotCreate,
                str("what is to be written has ", bytes, " bytes, but ", folder.empty() ? "this folder" : folder,
                    " has room for ", static_cast<int64_t>(space.available)),
                "give a folder on another file system");
  }
}

}  // namespace vit_hybrid::data
