// read_text_file(): open without waiting, look, then read.
#include "src/base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/base/quantity_text.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid {

namespace {

constexpr size_t kLongestPath = 4096;

// Closes what it holds, on every way out.
class Descriptor {
 public:
  // O_NONBLOCK: the open of a FIFO waits for nobody who writes into it.
  explicit Descriptor(const std::string& path) : value_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "it is a folder";
  if (S_ISFIFO(mode)) return "it is a FIFO, no file";
  if (S_ISSOCK(mode)) return "it is a socket, no file";
  return "it is a device, no file";
}

}  // namespace

std::string read_text_file(const std::string& path, int64_t most_bytes, const std::string& hint) {
  const std::string what = str("cannot read '", shown(path, kLongestPath), "': ");
  const Descriptor file(path);
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    throw Error(ErrorClass::kMissingInput, what + (errno == ENXIO ? "it is a socket, no file" : std::strerror(errno)),
                hint);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorClass::kMissingInput, what + kind_of(status.st_mode), hint);
  }
  std::string content;
  char buffer[65536];
  ssize_t count = 0;
  // Files of /proc say that they are empty, and others may grow: what is read counts.
  while ((count = read(file.get(), buffer, sizeof(buffer))) > 0) {
    content.append(buffer, static_cast<size_t>(count));
    if (static_cast<int64_t>(content.size()) > most_bytes) {
      throw Error(ErrorClass::kBadData, str(what, "it is longer than ", bytes_text(most_bytes)));
    }
  }
  if (count < 0) {
    throw Error(ErrorClass::kIo, str("reading '", shown(path, kLongestPath), "' failed: ", std::strerror(errno)));
  }
  return content;
}

}  // namespace vit_hybrid
