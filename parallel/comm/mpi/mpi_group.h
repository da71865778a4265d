// MpiGroup: an owned MPI communicator behind a wall, so that nobody else needs <mpi.h>.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace vit_hybrid::comm {

class WatchedGroup;

/// Some processes, in order, that can talk over MPI. Move-only; owns its MPI communicator. The
/// member functions that move data are for small control messages of host memory (arguments, ids,
/// status); they block, and are collective over the group, if nothing else is said. Tensors go through a Communicator.
/// Only the main thread may use it.
class MpiGroup {
 public:
  /// Holds the MPI_Comm; parallel/comm/mpi/mpi_handle.h has its definition for those who call MPI.
  struct Handle;

  explicit MpiGroup(std::unique_ptr<Handle> handle);
  MpiGroup(MpiGroup&&) noexcept;
  MpiGroup& operator=(MpiGroup&&) noexcept;
  /// Frees the MPI communicator, except while an exception unwinds or after MpiSession::finalize().
  ~MpiGroup();

  /// All processes, in the order of the launcher, but node by node: a node's ranks are consecutive. Rank 0 is the
  /// launcher's. Collective over all processes.
  static MpiGroup world();
  /// This process alone. Not collective.
  static MpiGroup alone();
  /// The same processes with messages of their own. Collective over the group.
  MpiGroup duplicate() const;
  /// Processes with equal `color` (>= 0) form a group, ordered by their rank in this one. Collective
  /// over the group.
  MpiGroup split(int color) const;
  /// The processes that share memory with this one. Collective over the group.
  MpiGroup split_by_node() const;
  /// How many ranks of the group each of its nodes has, in the order of the ranks. Collective over the group.
  std::vector<int> node_sizes() const;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// As the watchdogs know it, and with its ranks in the world.
  const std::shared_ptr<WatchedGroup>& watched() const { return watched_; }

  void barrier() const;
  /// `bytes` at `data` become those of `root`.
  void broadcast(void* data, int64_t bytes, int root) const;
  std::string broadcast(std::string text, int root) const;
  /// Of any texts, empty ones and line breaks in them too.
  std::vector<std::string> broadcast(const std::vector<std::string>& texts, int root) const;
  int64_t min(int64_t value) const;
  int64_t max(int64_t value) const;
  int64_t sum(int64_t value) const;
  /// Element by element, as many on every rank; the sums of integers are modulo 2^64, the last bits of the others may
  /// depend on the rank (for reports, not for what all ranks decide alike).
  void min(std::vector<int64_t>& values) const;
  void sum(std::vector<uint64_t>& values) const;
  void sum(std::vector<double>& values) const;
  void max(std::vector<double>& values) const;
  /// The value of every rank, in rank order.
  std::vector<int64_t> all_gather(int64_t value) const;
  /// The text of every rank, in rank order; 2 GiB together.
  std::vector<std::string> all_gather(const std::string& text) const;
  /// The same on rank 0 alone, and nothing elsewhere: for what grows with the number of ranks.
  std::vector<std::string> gather(const std::string& text) const;
  /// Of `values`, which rank 0 has for all ranks, the one of this rank.
  int64_t scatter(const std::vector<int64_t>& values) const;

  /// Returns when `bytes` at `data` may change again, or have come. Each send has its receive, of as many bytes;
  /// collective over the two ranks. No more than 1 GiB.
  void send(const void* data, int64_t bytes, int to) const;
  void receive(void* data, int64_t bytes, int from) const;

  const Handle& handle() const { return *handle_; }

 private:
  std::unique_ptr<Handle> handle_;
  std::shared_ptr<WatchedGroup> watched_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace vit_hybrid::comm
