// PosixFile: pread, pwrite and fsync in pieces, and renames that reach the storage; the text of MPI-IO hints.
#include "data/reading/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/folder_lock.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

MpiIoHints parse_mpiio_hints(const std::string& text) {
  constexpr size_t kMostKey = 255;  // characters of a key of MPI_Info, by the standard's least guarantee
  MpiIoHints hints;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals > kMostKey || equals + 1 == word.size()) {
      throw Error(ErrorClass::kUsage, str("'", shown(word), "' is no hint"), "hints are key=value,key=value,...");
    }
    hints.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    begin = end + 1;
  }
  return hints;
}

namespace {

// Whatever is at the name goes first, so that a new file can be made there: a link of that name, which somebody else
// may have put there, is removed and never followed.
int create_anew(const std::string& path) {
  require_folders();
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    const int error = errno;
    throw Error(ErrorClass::kCannotCreate, str("cannot create ", path, ": ", reason(error)),
                "check that the folder exists, may be written to and is not full");
  }
  return open_regular_file(path, O_RDWR | O_CREAT | O_EXCL, Links::kRefuse);
}

int open_as(const std::string& path, PosixFile::Access access) {
  switch (access) {
    case PosixFile::Access::kRead:
      return open_regular_file(path, O_RDONLY);
    case PosixFile::Access::kUpdate:
      return open_regular_file(path, O_RDWR, Links::kRefuse);
    case PosixFile::Access::kCreate:
      break;
  }
  return create_anew(path);
}

// So much at a time that the watchdog sees a slow file system come further.
size_t piece(int64_t bytes) {
  constexpr int64_t kMost = int64_t{64} << 20;
  return static_cast<size_t>(std::min(bytes, kMost));
}

}  // namespace

PosixFile::PosixFile(std::string path, Access access) : path_(std::move(path)), descriptor_(open_as(path_, access)) {}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

int64_t PosixFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    throw Error(ErrorClass::kIo, str("cannot get the size of ", path_, ": ", reason(errno)));
  }
  return status.st_size;
}

void PosixFile::read(int64_t offset, void* bytes, int64_t count) const {
  auto* to = static_cast<char*>(bytes);
  for (int64_t done = 0; done < count;) {
    comm::note_work();
    const ssize_t got = ::pread(descriptor_, to + done, piece(count - done), offset + done);
    if (got > 0) {
      done += got;
    } else if (got == 0) {
      throw Error(ErrorClass::kBadData,
                  str(path_, " ends at byte ", offset + done, ", where ", count - done, " more were expected"),
                  "the file is truncated: copy or make it again");
    } else if (errno != EINTR) {
      throw Error(ErrorClass::kIo, str("cannot read ", path_, " at byte ", offset + done, ": ", reason(errno)));
    }
  }
}

void PosixFile::write(int64_t offset, const void* bytes, int64_t count) const {
  const auto* from = static_cast<const char*>(bytes);
  for (int64_t done = 0; done < count;) {
    comm::note_work();
    const ssize_t put = ::pwrite(descriptor_, from + done, piece(count - done), offset + done);
    if (put > 0) {
      done += put;
    } else if (put == 0 || errno != EINTR) {
      throw Error(ErrorClass::kIo, str("cannot write ", path_, " at byte ", offset + done, ": ",
                                       put == 0 ? "nothing was written" : reason(errno)));
    }
  }
}

void PosixFile::sync() const {
  if (::fsync(descriptor_) != 0) {
    throw Error(ErrorClass::kIo, str("cannot flush ", path_, ": ", reason(errno)));
  }
}

void PosixFile::forget_cached() const {
  if (const int error = ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); error != 0) {
    throw Error(ErrorClass::kIo, str("cannot drop ", path_, " from the cache: ", reason(error)));
  }
}

void PosixFile::close() {
  // After close() the descriptor is gone whatever it returned (Linux), also with EINTR.
  if (descriptor_ >= 0 && ::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) {
    throw Error(ErrorClass::kIo, str("cannot write ", path_, ": ", reason(errno)));
  }
}

void rename_file(const std::string& from, const std::string& to) {
  require_folders();
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw Error(ErrorClass::kCannotCreate, str("cannot rename ", from, " to ", to, ": ", reason(errno)));
  }
}

void sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems cannot flush a folder and say so with EINVAL.
  const int error = descriptor < 0 || (::fsync(descriptor) != 0 && errno != EINVAL) ? errno : 0;
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (error != 0) {
    throw Error(ErrorClass::kIo, str("cannot flush the folder ", folder, ": ", reason(error)));
  }
}

}  // namespace vit_hybrid::data
