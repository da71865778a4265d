// WholeFile: a temporary file that is renamed.
#include "src/base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/error.h"
#include "src/base/folder_lock.h"
#include "src/base/text.h"

namespace vit_hybrid {

std::string temporary_name(const std::string& path) {
  const std::string mark = job_mark();
  return path + (mark.empty() ? "" : "." + mark) + ".partial";
}

WholeFile::WholeFile(std::string path) : path_(std::move(path)), temporary_(temporary_name(path_)), file_(nullptr) {
  require_folders();
  ::unlink(temporary_.c_str());
  const int descriptor = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  file_ = descriptor < 0 ? nullptr : ::fdopen(descriptor, "w");
  if (file_ == nullptr) {
    throw Error(ErrorClass::kCannotCreate, str("cannot create '", path_, "': ", std::strerror(errno)));
  }
}

WholeFile::~WholeFile() {
  if (file_ != nullptr) {
    std::fclose(file_);
    ::unlink(temporary_.c_str());
  }
}

void WholeFile::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail();
}

void WholeFile::finish() {
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) fail();
  require_folders();
  std::FILE* const file = std::exchange(file_, nullptr);
  if (std::fclose(file) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    require_folders();  // another job may have taken the folder just now, and removed the file
    errno = reason;
    fail();
  }
}

void WholeFile::fail() const {
  throw Error(ErrorClass::kIo, str("writing '", path_, "' failed: ", std::strerror(errno)));
}

}  // namespace vit_hybrid
