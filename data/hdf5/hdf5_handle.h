// HDF5 identifiers that close themselves, types of values, and HDF5's errors as one text. For data/hdf5 only.
#pragma once

#include <ATen/core/Tensor.h>
#include <hdf5.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace vit_hybrid::data {

/// Prepares HDF5 once: it prints nothing itself, does nothing at exit (MPI may be gone by then), and locks no files
/// unless HDF5_USE_FILE_LOCKING asks for it (Lustre and NFS often refuse locks: "unable to lock file"). Main thread.
void hdf5_initialize();

/// Innermost reason of the last failed HDF5 call ("unable to open file: ... No such file"), and forgets it.
std::string hdf5_reason();

/// Owns an HDF5 identifier.
class Hid {
 public:
  using Close = herr_t (*)(hid_t);
  Hid() = default;
  Hid(hid_t id, Close close_call) : id_(id), close_(close_call) {}
  ~Hid() { static_cast<void>(close()); }
  Hid(Hid&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Hid& operator=(Hid&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Hid(const Hid&) = delete;
  Hid& operator=(const Hid&) = delete;

  explicit operator bool() const { return id_ >= 0; }
  hid_t get() const { return id_; }
  /// False if HDF5 reports an error, of which the reason is then kept.
  bool close() { return id_ < 0 || close_(std::exchange(id_, H5I_INVALID_HID)) >= 0; }
  /// Gives the identifier up without closing it.
  void abandon() { id_ = H5I_INVALID_HID; }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// Owns `id`, or throws Error(error_class, "cannot <what>: <HDF5's reason>").
Hid hdf5_own(hid_t id, Hid::Close close, ErrorClass error_class, const std::string& what);

/// Throws the same error if `status` is negative.
void hdf5_check(herr_t status, ErrorClass error_class, const std::string& what);

/// HDF5's type in memory of a tensor's type; kFloat, kDouble, kHalf, kBFloat16, kByte, kChar, kShort,
/// kInt, kLong.
hid_t hdf5_memory_type(at::ScalarType type);

/// The tensor type that holds a stored type's values, and whether they lie in the file exactly as in memory.
struct StoredType {
  at::ScalarType type;
  bool is_native;
};
/// Nothing for types that no tensor holds (strings, compounds, ...). Unsigned integers of 2 and 4 bytes are held by the
/// next larger signed type.
std::optional<StoredType> hdf5_stored_type(hid_t type);

/// Name of a stored type for messages: "32-bit float", "16-bit unsigned integer", "string".
std::string hdf5_type_name(hid_t type);

/// Bytes of values of this shape; -1 if they are more than 64 bits can count, as a damaged file may say.
int64_t hdf5_value_bytes(const std::vector<int64_t>& shape, at::ScalarType type);

/// Extents of a dataspace.
std::vector<int64_t> hdf5_shape(hid_t space);

}  // namespace vit_hybrid::data
