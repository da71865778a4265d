// IoMode: how the bytes of HDF5 datasets move (option --io).
#pragma once

#include <string_view>

namespace vit_hybrid::data {

enum class IoMode {
  kAuto,         ///< direct where the dataset's layout allows it, else independent
  kDirect,       ///< pread and pwrite at the dataset's offsets in the file, on any thread; unfiltered data only
  kIndependent,  ///< HDF5, main thread, each rank for itself
  kCollective,   ///< parallel HDF5, main thread, all ranks of the group together (MPI-IO)
};

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
