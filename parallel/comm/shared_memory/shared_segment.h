// SharedSegment: memory that the processes of one node share, one region per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

/// One region of equal size for each rank of a group whose processes share memory; regions are
/// zeroed and aligned to cache lines. Not part of ATen's memory.
class SharedSegment {
 public:
  /// Collective over `node`, which must lie on one node.
  SharedSegment(const MpiGroup& node, int64_t bytes_per_rank);
  /// Collective, except while an exception unwinds or after MpiSession::finalize().
  ~SharedSegment();
  SharedSegment(SharedSegment&&) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;

  /// Region of `rank`, as mapped in this process.
  std::byte* region(int rank) const;

 private:
  struct Window;
  std::unique_ptr<Window> window_;
};

/// Bytes free where MPI libraries keep shared memory (/dev/shm); the largest number if not known.
int64_t free_shared_memory();

}  // namespace vit_hybrid::comm
