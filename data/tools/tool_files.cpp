// Listing of folders, and checks of the place for outputs.
#include "data/tools/tool_files.h"

#include <filesystem>
#include <system_error>

#include "data/datasets/year_files.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of_folder(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (has_hdf5_name(entry->path().string())) {
      files.push_back(entry->path().string());
    }
  }
  if (error) {
    throw Error(ErrorClass::kMissingInput, str("cannot list the folder ", folder, ": ", error.message()));
  }
  if (files.empty()) {
    throw Error(ErrorClass::kMissingInput, str("the folder ", folder, " holds no *.h5, *.hdf5, *.nc or *.nc4 file"),
                "name the folder that has the files in it, or the files themselves");
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> list_files(const std::vector<std::string>& words,
                                    std::vector<std::string> (*in_folder)(const std::string&)) {
  std::vector<std::string> files;
  for (const std::string& word : words) {
    std::error_code error;
    if (fs::is_directory(word, error)) {
      const auto found = in_folder(word);
      files.insert(files.end(), found.begin(), found.end());
    } else if (fs::exists(word, error)) {
      files.push_back(word);
    } else {
      throw Error(ErrorClass::kMissingInput, str(word, " is not there"), "check the path");
    }
  }
  return files;
}

}  // namespace

std::vector<std::string> list_hdf5_inputs(const comm::MpiGroup& group, const std::vector<std::string>& words) {
  std::vector<std::string> files;
  comm::agreed_on_rank_0(group, [&] { files = list_files(words, &files_of_folder); });
  return group.broadcast(files, 0);
}

std::vector<std::string> list_weather_inputs(const comm::MpiGroup& group, const std::vector<std::string>& words) {
  std::vector<std::string> files;
  comm::agreed_on_rank_0(group, [&] { files = list_files(words, &list_weather_files); });
  return group.broadcast(files, 0);
}

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

OutputFolder::OutputFolder(const std::string& folder) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(folder, ignored), there = existing_part(folder);
  const bool goes_up = std::find(whole.begin(), whole.end(), "..") != whole.end();
  for (fs::path path = whole; !goes_up && path != there && path != path.parent_path(); path = path.parent_path()) {
    made_.push_back(path.string());
  }
  make_output_folder(folder);
}

OutputFolder::~OutputFolder() {
  for (const std::string& path : made_) {
    std::error_code is_full;
    fs::remove(path, is_full);
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
