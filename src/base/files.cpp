// open(2) with the flags that never wait, whole reads, and files that get their name at the end.
#include "src/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "src/base/error.h"
#include "src/base/folder_lock.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPartial = ".partial";

[[noreturn]] void fail_writing(const std::string& path) {
  throw Error(ErrorClass::kIo, str("writing '", path, "' failed: ", reason(errno)));
}

}  // namespace

void refuse_existing(const std::string& path, bool overwrite, const std::string& option) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  if (there.type() == fs::file_type::none) {
    throw Error(ErrorClass::kCannotCreate, str("cannot create '", path, "': ", error.message()));
  }
  if (!fs::exists(there)) {
    return;
  }
  if (!fs::is_regular_file(there)) {
    throw Error(ErrorClass::kCannotCreate, str(option, " is '", path, "', which is there and is no regular file"),
                "give the name of a file");
  }
  if (!overwrite) {
    throw Error(ErrorClass::kCannotCreate, str("'", path, "' is there already"),
                "give --overwrite to replace it, or another " + option);
  }
}

void refuse_input(const std::string& path, const std::string& option, const std::string& input) {
  std::error_code ignored;
  if (fs::equivalent(path, input, ignored)) {
    throw Error(ErrorClass::kUsage, str(option, " is '", path, "', which is what is read"), "give another " + option);
  }
}

std::string temporary_name(const std::string& path) {
  const std::string mark = job_mark();
  return path + (mark.empty() ? "" : "." + mark) + kPartial;
}

std::string completed_name(const std::string& name) {
  constexpr size_t kMarkEnd = 9;  // "." and the mark
  if (!name.ends_with(kPartial)) return "";
  const std::string path = name.substr(0, name.size() - std::strlen(kPartial));
  const size_t dot = path.size() - std::min(path.size(), kMarkEnd);
  const bool has_mark = path[dot] == '.' && path.find_first_not_of("0123456789abcdef", dot + 1) == path.npos;
  return has_mark ? path.substr(0, dot) : path;
}

WholeFile::WholeFile(std::string path) : path_(std::move(path)), temporary_(temporary_name(path_)), file_(nullptr) {
  require_folders();
  ::unlink(temporary_.c_str());
  const int descriptor = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  file_ = descriptor < 0 ? nullptr : ::fdopen(descriptor, "w");
  if (file_ == nullptr) {
    throw Error(ErrorClass::kCannotCreate, str("cannot create '", path_, "': ", reason(errno)));
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
  fail_writing(path_);
}

void write_through(std::FILE* file, const std::string& bytes, const std::string& path) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() || std::fflush(file) != 0) {
    fail_writing(path);
  }
}

namespace {

constexpr int64_t kReadBytes = 1 << 20;
constexpr size_t kLongestPath = 2000;  // in a message; the system takes 4095

const char* kind_text(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    default:
      return "of an unknown kind";
  }
}

[[noreturn]] void refuse_kind(const std::string& path, mode_t mode) {
  // A folder in a file's place is a wrong path; the rest is nothing that a path of ours may be.
  throw Error(S_ISDIR(mode) ? ErrorClass::kMissingInput : ErrorClass::kBadData,
              str(shown(path, kLongestPath), " is ", kind_text(mode), ", a file is needed"),
              S_ISDIR(mode) ? "" : "give a regular file: copy what comes from a pipe or a device into one first");
}

[[noreturn]] void fail_open(const std::string& path, int flags, int error) {
  struct stat status {};
  const bool is_there = ::lstat(path.c_str(), &status) == 0;
  if (is_there && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
    refuse_kind(path, status.st_mode);  // a socket, a FIFO that nobody reads, a folder to be written
  }
  if ((flags & O_CREAT) != 0) {
    throw Error(ErrorClass::kCannotCreate, str("cannot create ", shown(path, kLongestPath), ": ", reason(error)),
                "check that the folder exists, may be written to and is not full");
  }
  if (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG) {
    throw Error(ErrorClass::kMissingInput, str(shown(path, kLongestPath), " is not there (", reason(error), ")"),
                "check the path; every node of the job must see the file");
  }
  if (error == ELOOP && is_there) {
    throw Error(ErrorClass::kBadData, str(path, " is a symbolic link, a file is needed"));
  }
  throw Error(ErrorClass::kIo, str("cannot open ", shown(path, kLongestPath), ": ", reason(error)));
}

// A descriptor that is closed when it is left.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int operator*() const { return number_; }

 private:
  int number_;
};

}  // namespace

int open_regular_file(const std::string& path, int flags, Links links) {
  const int all = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), all, 0666);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) {
    fail_open(path, flags, errno);
  }
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    refuse_kind(path, status.st_mode);
  }
  // Reads are to wait: some file systems fetch a file from tape.
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

std::string read_regular_file(const std::string& path, int64_t most_bytes, Links links) {
  const Descriptor file(open_regular_file(path, O_RDONLY, links));
  std::string content;
  for (;;) {
    const auto done = static_cast<int64_t>(content.size());
    if (done > most_bytes) {
      throw Error(ErrorClass::kBadData, str(path, " has more than ", most_bytes, " bytes, the most that it may have"));
    }
    const int64_t wanted = std::min(kReadBytes, most_bytes + 1 - done);
    content.resize(static_cast<size_t>(done + wanted));
    const ssize_t got = ::read(*file, content.data() + done, static_cast<size_t>(wanted));
    content.resize(static_cast<size_t>(done + std::max<ssize_t>(got, 0)));
    if (got < 0 && errno != EINTR) {
      throw Error(ErrorClass::kIo, str("cannot read ", path, ": ", reason(errno)));
    }
    if (got == 0) {
      return content;
    }
  }
}

}  // namespace vit_hybrid
