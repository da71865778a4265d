// What generators of data share: ranges of options, and the folder that they write.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/zarr/zarr_metadata.h"
#include "src/base/error.h"
#include "src/base/folder_lock.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

/// Collects what is wrong with the options of one command.
class OptionProblems {
 public:
  /// Notes `value` if it is not in [lowest, highest]; nan is in no range.
  template <class Number>
  void check(const char* name, Number value, Number lowest, Number highest) {
    if (!(value >= lowest && value <= highest)) {
      lines_.push_back(str(name, " is ", value, ", allowed is ", lowest, " to ", highest));
    }
  }
  bool none() const { return lines_.empty(); }
  /// Error(kUsage) with all lines, if there are any.
  void throw_if_any() const {
    if (!none()) throw Error(ErrorClass::kUsage, join(lines_, "\n"));
  }

 private:
  std::vector<std::string> lines_;
};

/// What a generator does with a folder that is not empty.
enum class ExistingFiles {
  kRefuse,   ///< nothing is touched
  kReplace,  ///< files of the same names are replaced; nothing is ever deleted
};

/// A Zarr store that a ZarrWriter will write.
struct PlannedStore {
  std::string name;  ///< relative to the folder: "train/1990.zarr"
  std::vector<ZarrArray> arrays;
};

/// The files and stores that will be written.
struct PlannedOutput {
  std::string folder;
  std::vector<std::string> files;  ///< relative to the folder: "train/1990.h5"
  std::vector<PlannedStore> stores = {};
  std::vector<std::string> parts;  ///< subfolders that belong to the data set, beside those of the files
  int64_t bytes = 0;               ///< of all of them together
  ExistingFiles existing = ExistingFiles::kRefuse;
};

/// Checks and makes the folder and the subfolders of the files and stores, on this rank alone, and locks the folder:
/// the lock is to be held until all is written. Error(kUsage) without a name of the folder; Error(kCannotCreate) if it
/// is not empty and may not be (what a killed attempt at the same files left unfinished is nothing, as are chunks of a
/// store without metadata), if a name of a file or store is that of something else, if beside what is to be replaced
/// other .h5 files or stores lie (they would become part of the data set), if a store to be replaced has anything that
/// would stay, if there is no room, if a folder cannot be made, or if another job writes in it.
std::unique_ptr<FolderLock> prepare_output(const PlannedOutput& output);

}  // namespace vit_hybrid::data
