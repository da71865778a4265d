// The tasks of the MPI back end that send messages: plain sets of messages, and reductions.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/host_task.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/mpi/mpi_requests.h"
#include "parallel/comm/transport_options.h"
#include "src/base/partition.h"

namespace vit_hybrid::comm {

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

}  // namespace vit_hybrid::comm
