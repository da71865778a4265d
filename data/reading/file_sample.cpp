// Hashes of samples of files, made once a node and compared with those of rank 0.
#include "data/reading/file_sample.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/host_name.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// What is read of each file: its head, and pieces behind it up to the end.
struct Extent {
  int64_t head_bytes;
  int64_t piece_bytes;
  int64_t num_pieces;
};

// The more files, the less of each: about 10 MiB in all, but two pages of each.
Extent extent_of_each(size_t num_files) {
  constexpr int64_t kPage = 4096;
  constexpr size_t kFilesInFull = 32;
  const auto divisor = static_cast<int64_t>((num_files + kFilesInFull - 1) / kFilesInFull);
  const int64_t head = std::max(16 * kPage / divisor, kPage);
  return {head, std::min(4 * kPage, head), std::max<int64_t>(15 / divisor, 1)};
}

// What tells that two ranks of a node see one file, without reading it; and the hash of its sample.
struct Sample {
  std::array<int64_t, 6> identity{};
  uint64_t hash = 0;
};
using Samples = std::vector<Sample>;

std::array<int64_t, 6> identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    PosixFile(path, PosixFile::Access::kRead).close();  // throws the error
  }
  return {static_cast<int64_t>(status.st_dev),
          static_cast<int64_t>(status.st_ino),
          status.st_size,
          status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec,
          status.st_ctim.tv_nsec};
}

uint64_t hash_of(const std::string& path, const Extent& extent) {
  const PosixFile file(path, PosixFile::Access::kRead);
  const int64_t size = file.size();
  std::vector<char> bytes(static_cast<size_t>(std::min(size, extent.head_bytes)));
  file.read(0, bytes.data(), std::ssize(bytes));
  const int64_t last = size - extent.piece_bytes;
  const int64_t num_pieces = size > extent.head_bytes ? extent.num_pieces : 0;
  for (int64_t piece = 1; piece <= num_pieces; ++piece) {
    const size_t at = bytes.size();
    bytes.resize(at + static_cast<size_t>(extent.piece_bytes));
    // In two terms: the product of size and piece may not fit.
    file.read(last / num_pieces * piece + last % num_pieces * piece / num_pieces, bytes.data() + at,
              extent.piece_bytes);
  }
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string packed(const Samples& samples) {
  return {reinterpret_cast<const char*>(samples.data()), samples.size() * sizeof(Sample)};
}

Samples unpacked(const std::string& bytes) {
  Samples samples(bytes.size() / sizeof(Sample));
  std::memcpy(samples.data(), bytes.data(), bytes.size());
  return samples;
}

// Of the files that the node's first rank sees too, its hashes.
Samples samples_of(const comm::MpiGroup& group, const std::vector<std::string>& paths) {
  const Extent extent = extent_of_each(paths.size());
  Samples samples(paths.size());
  const comm::MpiGroup node = group.split_by_node();
  const auto look = [&](const Samples& known) {
    comm::agreed(group, [&] {
      for (size_t i = 0; i < paths.size(); ++i) {
        samples[i].identity = identity_of(paths[i]);
        const bool is_known = !known.empty() && known[i].identity == samples[i].identity;
        samples[i].hash = is_known ? known[i].hash : hash_of(paths[i], extent);
      }
    });
  };
  Samples first;
  if (node.rank() == 0) {
    look({});
  } else {
    comm::agreed(group, [] {});
  }
  first = unpacked(node.broadcast(node.rank() == 0 ? packed(samples) : std::string(), 0));
  look(first);
  return samples;
}

}  // namespace

void require_same_files(const comm::MpiGroup& group, const std::vector<std::string>& paths) {
  if (group.size() == 1) {
    return;
  }
  const Samples mine = samples_of(group, paths);
  const Samples of_rank_0 = unpacked(group.broadcast(group.rank() == 0 ? packed(mine) : std::string(), 0));
  const std::string host_0 = group.broadcast(host_name(), 0);
  comm::agreed(group, [&] {
    for (size_t i = 0; i < paths.size(); ++i) {
      if (mine[i].hash != of_rank_0[i].hash) {
        throw Error(ErrorClass::kBadData,
                    str(paths[i], " has other contents on rank ", group.rank(), " (", host_name(), ") than on rank 0 (",
                        host_0, "), though the same size"),
                    "all ranks must see the same data: copy the files to the nodes anew, or use a folder that all "
                    "nodes share");
      }
    }
  });
}

}  // namespace vit_hybrid::data
