// HDF5 handles that close themselves, and files opened and created, on one rank or in parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <hdf5.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace vit_hybrid::data {

/// Prepares HDF5 once: it prints nothing itself, does nothing at exit (MPI may be gone by then), and locks no files
/// unless HDF5_USE_FILE_LOCKING asks for it (Lustre and NFS often refuse locks: "unable to lock file"). The program
/// does so before MPI starts: else HDF5 ends in MPI_Finalize, where it writes again what it could not write (a full
/// disk, a limit of file sizes), and dies of it. Main thread.
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

/// Throws the same error if `status` is negative; where it would be kIo because of a filter that fails, kBadData.
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

/// A filter of a dataset's pipeline and the first of its parameters.
struct Hdf5Filter {
  H5Z_filter_t id = 0;
  std::string name;
  unsigned parameter = 0;
};
/// In the order of writing, by the list of properties that the dataset was created with.
std::vector<Hdf5Filter> hdf5_filters(hid_t creation);

/// Bytes of values of this shape; -1 if they are more than 64 bits can count, as a damaged file may say.
int64_t hdf5_value_bytes(const std::vector<int64_t>& shape, at::ScalarType type);

/// Extents of a dataspace.
std::vector<int64_t> hdf5_shape(hid_t space);

/// Size of the file; Error(kMissingInput) if it is not there.
int64_t existing_file_bytes(const std::string& path);

/// Opens for reading, on this rank alone or, with an access property list for MPI-IO, collectively. Error(kBadData) if
/// it is no HDF5 file or truncated.
Hid hdf5_open_file(const std::string& path, hid_t access = H5P_DEFAULT);

/// Error(kBadData) if it is not there (the hint names the datasets that are), or hdf5_check_storage() refuses it.
/// `chunk_cache_bytes` 0 is HDF5's default.
Hid hdf5_open_dataset(hid_t file, const std::string& path, const std::string& dataset, int64_t chunk_cache_bytes = 0);

/// Error(kBadData), naming `where`, if the dataset has external storage (raw files that it names) outside of the folder
/// of the file that it is in and those below it: a file that came from elsewhere must not make others part of the data.
/// The same, with the remedy, for filtered chunks of more than 512 MiB of values, each of which is in memory as a whole
/// when one of its values is read. hdf5_open_dataset() has asked it.
void hdf5_check_storage(hid_t dataset, const std::string& where);

/// Name of the file that the object lies in.
std::string hdf5_file_name(hid_t object);

/// Text of an attribute of a file or dataset (an array of texts: joined with commas); empty if it is not there or no
/// text. Errors as hdf5_texts()'s.
std::string hdf5_text_attribute(hid_t object, const std::string& name);

/// Removes what has the name of a file that is about to be made. On one rank.
void hdf5_make_way(const std::string& path);

/// Makes a file of a name that nothing has, after hdf5_make_way(); else Error(kCannotCreate). So a link of the name,
/// which somebody else may have put there to have its target emptied, is never followed: HDF5 and MPI-IO open by name,
/// and between a look at the name and an opening that truncates it could still become one. Collective where `access` is
/// MPI-IO's.
Hid hdf5_create_anew(const std::string& path, const Hid& creation, const Hid& access);

}  // namespace vit_hybrid::data
