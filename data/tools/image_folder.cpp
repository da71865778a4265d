// Listing of classes and their files.
#include "data/tools/image_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

bool is_image(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

void check(const std::error_code& error, const std::string& folder) {
  if (error) {
    throw Error(ErrorClass::kMissingInput, str("cannot list the folder ", folder, ": ", error.message()),
                "name the folder that has one subfolder for each class");
  }
}

std::vector<std::string> list_classes(const std::string& folder, int64_t& num_stray) {
  std::vector<std::string> classes;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      classes.push_back(entry->path().filename().string());
    } else if (is_image(entry->path())) {
      ++num_stray;
    }
  }
  check(error, folder);
  if (classes.empty()) {
    throw Error(ErrorClass::kMissingInput, str(folder, " has no subfolders"), "needed is one subfolder for each class");
  }
  std::sort(classes.begin(), classes.end());
  return classes;
}

void check_name(const std::string& name, const char* forbidden, const char* what) {
  if (name.find_first_of(forbidden) != std::string::npos) {
    throw Error(ErrorClass::kBadData, str("'", name, "' has a ", what, " in its name"), "rename it");
  }
}

// A folder in the file system, whatever path leads to it.
using FolderId = std::pair<dev_t, ino_t>;

// The images of a folder and of those below it, links to folders followed. Each folder is entered once: links that lead
// back, or together, would make endless paths of few folders.
void add_paths(const fs::path& folder, std::set<FolderId>& entered, std::vector<std::string>& paths,
               int64_t& num_ignored) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0 || !entered.emplace(status.st_dev, status.st_ino).second) {
    return;
  }
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      folders.push_back(entry->path());
    } else if (is_image(entry->path())) {
      paths.push_back(entry->path().string());
      check_name(paths.back(), "\n", "line break");
    } else {
      ++num_ignored;
    }
  }
  check(error, folder.string());
  std::sort(folders.begin(), folders.end());  // which of two paths is taken does not depend on the file system
  for (const fs::path& below : folders) {
    add_paths(below, entered, paths, num_ignored);
  }
}

void add_files(const std::string& folder, int64_t label, ImageFolder& result) {
  std::vector<std::string> paths;
  std::set<FolderId> entered;
  add_paths(folder, entered, paths, result.num_ignored);
  if (paths.empty()) {
    throw Error(ErrorClass::kBadData, str("the class folder ", folder, " holds no *.jpg, *.jpeg or *.png file"),
                "remove it, or put its images there");
  }
  std::sort(paths.begin(), paths.end());
  for (std::string& path : paths) {
    result.files.push_back({std::move(path), label});
  }
}

}  // namespace

ImageFolder list_image_folder(const std::string& folder) {
  ImageFolder result;
  result.classes = list_classes(folder, result.num_stray);
  for (size_t label = 0; label < result.classes.size(); ++label) {
    check_name(result.classes[label], ",\n", "comma or line break");
    add_files((fs::path(folder) / result.classes[label]).string(), static_cast<int64_t>(label), result);
  }
  return result;
}

}  // namespace vit_hybrid::data
