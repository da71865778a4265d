// PosixFile: a file read and written at offsets, and the ways in which values are read (IoMode).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/files.h"

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

/// An open file. read() and write() at an offset do not move anything and may be called by several threads at once.
class PosixFile {
 public:
  enum class Access {
    kRead,    ///< must exist
    kUpdate,  ///< must exist, and be no link; read and write
    kCreate,  ///< made anew: what has the name, a link too, is removed first
  };

  /// Errors as open_regular_file()'s: only a regular file is opened. One is made in folders that are ours alone:
  /// require_folders().
  PosixFile(std::string path, Access access);
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const;
  /// All of the bytes: a file that ends earlier throws Error(kBadData), a failed read Error(kIo).
  void read(int64_t offset, void* bytes, int64_t count) const;
  void write(int64_t offset, const void* bytes, int64_t count) const;
  /// What is on the storage need not stay in this node's memory: the next read comes from the storage, where the system
  /// follows. Error(kIo).
  void forget_cached() const;
  /// Waits until the bytes are on the storage.
  void sync() const;
  /// Closes; a delayed write error (network file systems, quotas) throws Error(kIo). The destructor closes silently.
  void close();

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// Renames, replacing an old `to`; then `to` is complete or not there at all. Error(kCannotCreate), and errors as
/// require_folders()'s.
void rename_file(const std::string& from, const std::string& to);

/// Waits until the names in the folder of `path` are on the storage: after it a rename outlives a crash. Error(kIo).
void sync_folder_of(const std::string& path);

using vit_hybrid::temporary_name;

}  // namespace vit_hybrid::data
