// ImageFolder: image files in one folder a class, as ImageNet is unpacked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

struct LabelledFile {
  std::string path;
  int64_t label = 0;
};

struct ImageFolder {
  std::vector<std::string> classes;  ///< names of the subfolders, sorted: class number i is classes[i]
  std::vector<LabelledFile> files;   ///< sorted by class and path
  int64_t num_ignored = 0;           ///< files of other kinds, by their names
  int64_t num_stray = 0;             ///< images beside the classes' folders, which are of no class
};

/// Lists *.jpg, *.jpeg and *.png (upper or lower case), also in folders below the classes' own. On this rank alone.
/// Error(kMissingInput) without the folder or without subfolders, Error(kBadData) for a class without images or with a
/// comma or line break in its name or in a path.
ImageFolder list_image_folder(const std::string& folder);

}  // namespace vit_hybrid::data
