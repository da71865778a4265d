// Rewriting of HDF5 files so that they are read fast.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

enum class RepackLayout {
  kContiguous,    ///< one run of bytes
  kSampleChunks,  ///< one chunk, without filters, for each index of the first dim
};

enum class RepackType { kKeep, kFloat32, kBFloat16, kFloat16 };

struct RepackOptions {
  std::vector<std::string> inputs;  ///< files and folders
  std::string out;                  ///< folder to be made
  std::string dataset = {};         ///< empty: `fields` or `images`, whichever the file has
  RepackLayout layout = RepackLayout::kContiguous;
  RepackType type = RepackType::kKeep;
  int64_t align = 4096;  ///< bytes
  bool overwrite = false;
};

struct RepackedFile {
  std::string path;
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;
  int64_t num_values = 0;
  int64_t num_blurred = 0;  ///< values other than 0 that are below the new type's normal numbers and lose digits
};

/// Rewrites each file to a file of its name in `out`: the dataset in the wanted layout and type, every rank its rows;
/// all else is copied. A file gets its name when all of it was read back by HDF5: every row by another rank than the
/// one that wrote it, with the checksum it was written with, and all else compared with the input by rank 0. Its bytes
/// do not depend on the number of ranks. `progress` is called on rank 0. Collective over `group`; errors are agreed:
/// Error(kMissingInput), Error(kBadData) also for a value that the new type cannot hold, Error(kUsage),
/// Error(kCannotCreate), Error(kIo).
std::vector<RepackedFile> repack_files(const comm::MpiGroup& group, const RepackOptions& options,
                                       const std::function<void(const std::string&)>& progress);

}  // namespace vit_hybrid::data
