// For the few files that call MPI: the MPI_Comm behind an MpiGroup, checked calls, and MpiRequests: messages completed
// together.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

struct MpiGroup::Handle {
  MPI_Comm comm = MPI_COMM_NULL;
};

/// The group's communicator, for calls of MPI and parallel HDF5; it stays the group's.
inline MPI_Comm mpi_comm(const MpiGroup& group) {
  return group.handle().comm;
}

/// Throws Error(kIo) with MPI's own text if `code` is not MPI_SUCCESS; `call` names the function.
void check_mpi(int code, const char* call);

/// Rank in MpiGroup::world() of each rank of `comm`.
std::vector<int> world_ranks(MPI_Comm comm);

/// False before MPI_Init and after MPI_Finalize, and while an exception unwinds the stack: then a
/// destructor must leave MPI alone, because the other ranks will not join it.
bool may_release_mpi() noexcept;

// MpiRequests: non-blocking calls of MPI that are completed together, with a check of what came.

/// A set of non-blocking calls that are completed together; a message is cut into pieces that MPI's counts can say. Not
/// for use after a failed test().
class MpiRequests {
 public:
  MpiRequests(MPI_Comm comm, int64_t max_message_bytes) : comm_(comm), max_message_bytes_(max_message_bytes) {}

  /// Messages of one pair of ranks and tag match in the order in which they are posted; nothing is posted for 0 bytes.
  void send(const void* data, int64_t bytes, int peer, int tag);
  void receive(void* data, int64_t bytes, int peer, int tag);

  /// True once all are complete (and for an empty set), which is empty then. Throws Error(kIo) if one failed, and
  /// Error(kInternal) if a message was shorter or longer than its receive.
  bool test();

  /// Ranks, of the communicator, whose messages are not complete.
  std::vector<int> pending_peers() const;

 private:
  void add(MPI_Request request, int peer, int64_t bytes);
  void check_received(size_t index) const;
  void fail() const;

  MPI_Comm comm_;
  int64_t max_message_bytes_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> peers_;
  std::vector<int64_t> received_;  // bytes expected; -1 for what is not a receive
};

}  // namespace vit_hybrid::comm
