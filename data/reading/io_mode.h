// IoMode: how the bytes of HDF5 datasets move (option --io).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vit_hybrid::data {

enum class IoMode {
  kAuto,         ///< direct where the dataset's layout allows it, else independent
  kDirect,       ///< pread and pwrite at the dataset's offsets in the file, on any thread; deflate is undone there too
  kIndependent,  ///< HDF5, main thread, each rank for itself
  kCollective,   ///< parallel HDF5, main thread, all ranks of the group together (MPI-IO)
};

/// Keys and values for MPI-IO (MPI_Info), such as striping_unit or romio_cb_read.
using MpiIoHints = std::vector<std::pair<std::string, std::string>>;

/// "key=value,key=value"; Error(kUsage) for anything else. An empty text is no hints.
MpiIoHints parse_mpiio_hints(const std::string& text);

constexpr std::string_view io_mode_name(IoMode mode) {
  switch (mode) {
    case IoMode::kAuto:
      return "auto";
    case IoMode::kDirect:
      return "direct";
    case IoMode::kIndependent:
      return "independent";
    case IoMode::kCollective:
      break;
  }
  return "collective";
}

}  // namespace vit_hybrid::data
