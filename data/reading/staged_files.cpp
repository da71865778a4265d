// Staging: files made by one rank of the node, opened by all, unlinked, and only then filled.
#include "data/reading/staged_files.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kStagedPieceBytes = int64_t{1} << 22;

// The byte ranges that are copied.
std::vector<Range> wanted(const FileToStage& file) {
  std::vector<Range> holes = file.left_out;
  std::sort(holes.begin(), holes.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> ranges;
  int64_t at = 0;
  for (const Range& hole : holes) {
    if (hole.begin > at) {
      ranges.push_back({at, hole.begin});
    }
    at = std::max(at, hole.end);
  }
  if (at < file.bytes) {
    ranges.push_back({at, file.bytes});
  }
  return ranges;
}

struct StagedPiece {
  size_t file;
  Range bytes;
};

std::vector<StagedPiece> cut(const std::vector<FileToStage>& files) {
  std::vector<StagedPiece> pieces;
  for (size_t i = 0; i < files.size(); ++i) {
    for (const Range& range : wanted(files[i])) {
      for (int64_t begin = range.begin; begin < range.end; begin += kStagedPieceBytes) {
        pieces.push_back({i, {begin, std::min(begin + kStagedPieceBytes, range.end)}});
      }
    }
  }
  return pieces;
}

void check_space(const std::string& folder, int64_t bytes) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) {
    throw Error(ErrorClass::kCannotCreate, str("cannot stage data in ", folder, ": ", reason(errno)),
                "give --stage-dir a folder of every node");
  }
  const auto free = static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  if (bytes > free) {
    throw Error(ErrorClass::kCannotCreate,
                str("cannot stage data in ", folder, ": ", bytes, " bytes are needed, ", free, " are free"),
                "give --stage-dir a larger one, or --limit-nsamples, or --stage-data none");
  }
}

// Into a file that has no name any more.
void write_all(int descriptor, int64_t offset, const char* bytes, int64_t count) {
  for (int64_t done = 0; done < count;) {
    const ssize_t put = ::pwrite(descriptor, bytes + done, static_cast<size_t>(count - done), offset + done);
    if (put == 0 || (put < 0 && errno != EINTR)) {
      throw Error(ErrorClass::kIo,
                  str("cannot write a staged copy: ", put == 0 ? "nothing was written" : reason(errno)));
    }
    done += std::max<ssize_t>(put, 0);
  }
}

// A folder of the node that is gone with this object.
class PassingFolder {
 public:
  explicit PassingFolder(const std::string& parent) : path_(parent + "/vit_hybrid-stage-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw Error(ErrorClass::kCannotCreate, str("cannot stage data in ", parent, ": ", reason(errno)),
                  "give --stage-dir a folder that may be written to");
    }
  }
  ~PassingFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

StagedFiles::StagedFiles(const comm::MpiGroup& group, const std::vector<FileToStage>& files,
                         const std::string& folder) {
  for (const FileToStage& file : files) {
    for (const Range& range : wanted(file)) {
      bytes_ += range.size();
    }
  }
  const comm::MpiGroup node = group.split_by_node();
  std::optional<PassingFolder> passing;  // on the node's first rank
  comm::agreed(group, [&] {
    if (node.rank() == 0) {
      check_space(folder, bytes_);
      passing.emplace(folder);
    }
  });
  const std::string path = node.broadcast(passing ? passing->path() : std::string(), 0);
  try {
    comm::agreed(group, [&] {
      for (size_t i = 0; i < files.size() && node.rank() == 0; ++i) {
        PosixFile(str(path, "/", i), PosixFile::Access::kCreate).close();
        fs::resize_file(str(path, "/", i), static_cast<uintmax_t>(files[i].bytes));
      }
    });
    comm::agreed(group, [&] {
      for (size_t i = 0; i < files.size(); ++i) {
        descriptors_.push_back(::open(str(path, "/", i).c_str(), O_RDWR | O_CLOEXEC));
        if (descriptors_.back() < 0) {
          throw Error(ErrorClass::kIo, str("cannot open ", path, "/", i, ": ", reason(errno)));
        }
      }
    });
    passing.reset();
    comm::agreed(group, [&] { copy_share(node, files, folder); });
  } catch (...) {
    for (const int descriptor : descriptors_) {
      ::close(descriptor);
    }
    throw;
  }
}

StagedFiles::~StagedFiles() {
  for (const int descriptor : descriptors_) {
    ::close(descriptor);
  }
}

// A contiguous part of all pieces: the ranks read different files, or different parts of one.
void StagedFiles::copy_share(const comm::MpiGroup& node, const std::vector<FileToStage>& files,
                             const std::string& folder) const {
  const std::vector<StagedPiece> pieces = cut(files);
  const Range mine = Partition(static_cast<int64_t>(pieces.size()), node.size()).part(node.rank());
  std::vector<char> buffer(mine.empty() ? 0 : kStagedPieceBytes);
  Progress progress(str("copying ", files.size(), files.size() == 1 ? " file (" : " files (", bytes_text(bytes_),
                        ") to ", folder, " of each node"),
                    mine.size());
  std::optional<PosixFile> from;
  std::optional<size_t> open_file;
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const StagedPiece& piece = pieces[static_cast<size_t>(i)];
    if (open_file != piece.file) {
      from.emplace(files[piece.file].path, PosixFile::Access::kRead);
      open_file = piece.file;
    }
    from->read(piece.bytes.begin, buffer.data(), piece.bytes.size());
    write_all(descriptors_[piece.file], piece.bytes.begin, buffer.data(), piece.bytes.size());
    progress.add();
  }
}

std::string StagedFiles::path(size_t file) const {
  return str("/proc/self/fd/", descriptors_[file]);
}

std::string default_stage_folder() {
  if (::access("/dev/shm", W_OK | X_OK) == 0) {
    return "/dev/shm";
  }
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/tmp";
}

}  // namespace vit_hybrid::data
