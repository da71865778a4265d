// Files: regular ones opened without ever waiting, new ones that are there as a whole or not at all, and what has their
// names already.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace vit_hybrid {

/// Error(kCannotCreate) where `path` is there and `overwrite` is not given, or is no regular file (a folder, a device,
/// a FIFO), which nothing replaces; `option` names it.
void refuse_existing(const std::string& path, bool overwrite, const std::string& option = "--out");

/// Error(kUsage) where `path`, which `option` names, is the file `input` itself, by whatever name: --overwrite is for
/// what an earlier command wrote.
void refuse_input(const std::string& path, const std::string& option, const std::string& input);

/// Name under which the file `path` is written until it is complete: no other job's where this one has a job_mark().
std::string temporary_name(const std::string& path);

/// The file that `name` is a temporary_name() of, whichever job's it is; empty where it is none.
std::string completed_name(const std::string& name);

/// Written under a temporary name beside `path`, which finish() replaces. What is there under the
/// temporary name goes before; a file that a link leads to is never touched. Made in folders that are ours alone:
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

/// What a path stands for at the end of its links.
enum class Links { kFollow, kRefuse };

/// Opens a regular file with these flags of open(2) and returns its descriptor, which the caller closes. Never waits:
/// what is no regular file is opened by nobody (a FIFO would block, a device might act) or closed again.
/// Error(kMissingInput) where it must be there and is not, Error(kCannotCreate) for flags with O_CREAT that fail,
/// Error(kBadData) where it is no regular file ("is a FIFO"), else Error(kIo).
int open_regular_file(const std::string& path, int flags, Links links = Links::kFollow);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OwnedFile = std::unique_ptr<std::FILE, CloseFile>;

/// Writes all bytes and hands them to the operating system. Error(kIo), which names the path.
void write_through(std::FILE* file, const std::string& bytes, const std::string& path);

/// The bytes of a regular file, of which there are `most_bytes` at most: a larger one is Error(kBadData). Other errors
/// as open_regular_file()'s.
std::string read_regular_file(const std::string& path, int64_t most_bytes, Links links = Links::kFollow);

}  // namespace vit_hybrid
