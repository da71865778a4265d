// WholeFile: a new file of text that is there as a whole or not at all.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace vit_hybrid {

/// Name under which the file `path` is written until it is complete: no other job's where this one has a job_mark().
std::string temporary_name(const std::string& path);

/// Written under a temporary name beside `path`, which finish() replaces. A file of the temporary name that a killed
/// program left is removed; one that a link leads to is never touched. Made in folders that are ours alone:
/// require_folders().
class WholeFile {
 public:
  /// Throws Error(kCannotCreate).
  explicit WholeFile(std::string path);
  /// Without finish(): leaves no file behind, and an old one of the name as it was.
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  /// Throws Error(kIo).
  void write(std::string_view text);
  /// The bytes are on the storage and the file has its name. Throws Error(kIo).
  void finish();

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  std::string temporary_;
  std::FILE* file_;
};

}  // namespace vit_hybrid
