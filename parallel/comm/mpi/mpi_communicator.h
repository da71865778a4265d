// MpiCommunicator: a Communicator of host tensors over MPI, and the requests and tasks that its operations are made of.
#pragma once

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/host_task.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/partition.h"

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

/// What the tasks of one MPI communicator share. Tasks hold it too, so that one that was abandoned
/// keeps the memory into which messages still arrive.
struct MpiLink {
  MpiLink(MpiGroup the_group, const TransportOptions& the_options);

  MpiRequests requests() const;
  /// Tag of the next collective that sends messages; it differs from those of its predecessors.
  int next_tag();

  MpiGroup group;
  TransportOptions options;
  TaskQueue reductions;  ///< take their turns with the staging memory
  at::Tensor staging;

 private:
  int last_tag_ = 0;
};

/// Messages, or an MPI collective, that were posted together: exchange, all_gather, broadcast,
/// barrier.
class MessagesTask final : public HostTask {
 public:
  MessagesTask(std::shared_ptr<MpiLink> link, std::vector<at::Tensor> tensors);

  MpiRequests& requests() { return requests_; }
  bool advance() override { return requests_.test(); }
  std::vector<int> awaits() const override;

 private:
  std::shared_ptr<MpiLink> link_;
  std::vector<at::Tensor> tensors_;
  MpiRequests requests_;
};

/// Posts the all-gather in which rank r has part r of the elements at `data`, in place.
void post_all_gather(const MpiLink& link, MpiRequests& requests, const Partition& parts, void* data,
                     int64_t element_bytes, int tag);

/// reduce_scatter, and all_reduce as reduce-scatter and all-gather. Every rank gets the others' values
/// of the elements that it reduces, and adds them in rank order; nobody else computes these elements,
/// so all ranks have the same bits. Where the tensor is small, every rank reduces all of it (from the
/// same values in the same order), which saves the all-gather.
///
/// The elements go in pieces through two halves of the staging memory: while one is reduced, the
/// next one travels.
class ReductionTask final : public HostTask {
 public:
  enum class Result { kOwnPart, kWhole };

  /// `output` is the own part (kOwnPart), or `input` itself (kWhole).
  ReductionTask(std::shared_ptr<MpiLink> link, at::Tensor output, at::Tensor input, ReduceOp op, Result result);

  bool advance() override;
  std::vector<int> awaits() const override;

 private:
  bool advance_reduction();
  bool advance_gather();
  void take_turn();
  void post(int64_t piece);
  void reduce(int64_t piece);
  Range piece_of(int rank, int64_t piece) const;
  char* staged(int64_t piece, int rank) const;
  char* input_at(int64_t element) const;

  std::shared_ptr<MpiLink> link_;
  at::Tensor output_;
  at::Tensor input_;
  ReduceOp op_;
  Result result_;
  Partition parts_;
  int64_t element_bytes_;
  int64_t piece_elements_;
  bool all_reduce_all_;  // every rank reduces everything
  int tag_;

  bool begun_ = false;
  bool gathering_ = false;
  int64_t num_pieces_ = 0;
  int64_t posted_ = 0;
  int64_t reduced_ = 0;
  std::array<MpiRequests, 2> requests_;
};

/// Communicator of `group`, of at least two ranks, for host tensors. Collective over `group`.
std::unique_ptr<Communicator> make_mpi_communicator(const std::string& axis, MpiGroup group,
                                                    const TransportOptions& options);

}  // namespace vit_hybrid::comm
