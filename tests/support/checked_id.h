// Handles of HDF5 in tests that write files.
#pragma once

#include <hdf5.h>

#include <stdexcept>

namespace vit_hybrid::testing {

/// The handle, of a call that must have made it.
inline hid_t checked_id(hid_t id) {
  if (id < 0) {
    throw std::runtime_error("HDF5 refuses to make a test file");
  }
  return id;
}

}  // namespace vit_hybrid::testing
