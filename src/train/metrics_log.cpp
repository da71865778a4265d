// MetricsLog: lines of JSON, and a whole file of it.
#include "src/train/metrics_log.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

std::FILE* open_file(const std::string& path, const char* mode) {
  std::FILE* file = std::fopen(path.c_str(), mode);
  if (file == nullptr) {
    throw Error(ErrorClass::kCannotCreate, str("cannot create '", path, "': ", std::strerror(errno)));
  }
  return file;
}

std::FILE* open_new(const std::string& path) {
  return open_file(path, "w");
}

// A run that was killed may have left half a line: it is ended, so that ours stays whole.
std::FILE* open_to_append(const std::string& path) {
  std::FILE* file = open_file(path, "a+");
  if (std::fseek(file, -1, SEEK_END) == 0 && std::fgetc(file) != '\n') {
    std::fseek(file, 0, SEEK_END);
    std::fputc('\n', file);
  }
  std::fseek(file, 0, SEEK_END);
  return file;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, OldFile old_file)
    : path_(path), file_(old_file == OldFile::kAppend ? open_to_append(path) : open_new(path)) {}

void MetricsLog::write(const Json& record) {
  if (!file_) return;
  const std::string line = record.dump() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) {
    throw Error(ErrorClass::kIo, str("writing '", path_, "' failed: ", std::strerror(errno)));
  }
}

void write_json_file(const std::string& path, const Json& value) {
  const std::string temporary = path + ".part";
  const std::string text = value.dump(2) + "\n";
  std::FILE* file = open_new(temporary);
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool is_closed = std::fclose(file) == 0;
  std::error_code error;
  if (is_written && is_closed) {
    std::filesystem::rename(temporary, path, error);
  }
  if (!is_written || !is_closed || error) {
    throw Error(ErrorClass::kIo, str("writing '", path, "' failed: ", error ? error.message() : std::strerror(errno)));
  }
}

}  // namespace vit_hybrid::train
