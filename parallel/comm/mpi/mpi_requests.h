// MpiRequests: messages in flight between the ranks of one MPI communicator, in pieces if long.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace vit_hybrid::comm {

/// A set of non-blocking calls that are completed together. Not for use after a failed test().
class MpiRequests {
 public:
  MpiRequests(MPI_Comm comm, int64_t max_message_bytes) : comm_(comm), max_message_bytes_(max_message_bytes) {}

  void send(const void* data, int64_t bytes, int peer, int tag);
  void receive(void* data, int64_t bytes, int peer, int tag);
  void broadcast(void* data, int64_t bytes, int root);
  void barrier();

  /// True once all are complete (and for an empty set). Throws Error(kIo) if one failed, and
  /// Error(kInternal) if a message was shorter or longer than its receive.
  bool test();
  /// Ranks of the messages that are not complete.
  std::vector<int> pending_peers() const;

 private:
  void add(MPI_Request request, int peer, int64_t bytes);
  void check_received(size_t index) const;
  void fail();

  MPI_Comm comm_;
  int64_t max_message_bytes_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> peers_;         // -1 for collectives
  std::vector<int64_t> received_;  // bytes expected; -1 for what is not a receive
};

}  // namespace vit_hybrid::comm
