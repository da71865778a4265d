// Choices and checks before anything is written.
#include "data/tools/repack_plan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "data/hdf5/hdf5_tree.h"
#include "src/base/error.h"
#include "src/base/output_file.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace fs = std::filesystem;

std::string repacked_path(const RepackOptions& options, const std::string& input) {
  return (fs::path(options.out) / fs::path(input).filename()).string();
}

void check_repacked_paths(const RepackOptions& options, const std::vector<std::string>& inputs) {
  std::map<std::string, std::string> from;
  for (const std::string& input : inputs) {
    const std::string output = repacked_path(options, input);
    std::error_code error;
    if (fs::exists(output, error) && fs::equivalent(input, output, error)) {
      throw Error(ErrorClass::kUsage, str("--out ", options.out, " is the folder of ", input, " itself"),
                  "give another folder: a file is not rewritten in place");
    }
    refuse_existing(output, options.overwrite);
    const auto [other, is_new] = from.emplace(output, input);
    if (!is_new) {
      throw Error(ErrorClass::kUsage, str(input, " and ", other->second, " would both become ", output),
                  "repack them into different folders");
    }
  }
}

std::string repacked_dataset(const RepackOptions& options, const std::string& path) {
  if (!options.dataset.empty()) {
    return options.dataset;
  }
  std::vector<std::string> names;
  for (const auto& dataset : read_hdf5_tree(path).datasets) {
    names.push_back(dataset.name);
  }
  for (const char* usual : {"fields", "images"}) {
    if (std::find(names.begin(), names.end(), usual) != names.end()) {
      return usual;
    }
  }
  throw Error(ErrorClass::kUsage,
              str(path, " has neither 'fields' nor 'images' in it; it has ",
                  names.empty() ? "no dataset of its own" : join(names)),
              "say with --dataset NAME which of them to rewrite");
}

at::ScalarType repacked_type(RepackType wanted, at::ScalarType old) {
  switch (wanted) {
    case RepackType::kFloat32:
      return at::kFloat;
    case RepackType::kBFloat16:
      return at::kBFloat16;
    case RepackType::kFloat16:
      return at::kHalf;
    case RepackType::kKeep:
      break;
  }
  return old;
}

}  // namespace vit_hybrid::data
