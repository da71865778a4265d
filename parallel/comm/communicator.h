// Communicator: collectives and exchanges of contiguous tensors among the ranks of one group, and the Work that they
// return.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace vit_hybrid::comm {

/// Handle of one operation in flight. Move-only. It keeps the operation's tensors alive; they must
/// not be touched before wait() returns. Every Work must be waited for before it is destroyed (an
/// invariant: breaking it ends the program), except while an exception unwinds the stack.
class [[nodiscard]] Work {
 public:
  /// What a back end implements: its requests or events, and the tensors in flight.
  class State {
   public:
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    virtual ~State() = default;
    /// Returns when later work on the caller's stream (or the host, for host tensors) sees the
    /// result.
    virtual void wait() = 0;
    /// Makes progress; true if the operation is complete (then wait() does not block).
    virtual bool test() = 0;
    /// Nobody will wait any more (an exception unwinds). The state is leaked afterwards, because
    /// the operation may still write into its tensors.
    virtual void abandon() noexcept {}
  };

  /// An operation that is already complete.
  Work() = default;
  explicit Work(std::unique_ptr<State> state);
  Work(Work&& other) noexcept = default;
  /// The target must be complete.
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  /// Completes the operation; a second call returns at once. Host back ends make progress on all
  /// operations of the process meanwhile.
  void wait();
  /// Makes progress without blocking; true if complete.
  bool test();
  bool complete() const { return state_ == nullptr; }
  /// For back ends; null where it is complete.
  const State* state() const { return state_.get(); }

 private:
  // Memory that may still be written to must not be freed.
  void leak() noexcept;

  std::unique_ptr<State> state_;
};

/// How values of several ranks become one. kMax of a NaN is unspecified (but the same bits on all ranks).
enum class ReduceOp { kSum, kMax };

/// One message of exchange(): `tensor` is sent to, or received from, rank `peer` of the group.
struct Transfer {
  enum class Direction { kSend, kReceive };
  Direction direction;
  at::Tensor tensor;
  int peer;
};

/// The ranks of one group (a mesh axis, the world). All operations are collective over
/// the group and are started in the same order by all its ranks; exchange() is collective over the
/// ranks that it connects. Tensors are contiguous, on device_type(), and of type float64, float32,
/// float16, bfloat16, int64, int32, uint8 or bool (bool is not summed); anything else is refused
/// with Error(kInternal), the same text from every back end. All ranks of the group get the same
/// bits. Host back ends reduce every element in rank order, ((x0 + x1) + x2) + ..., inside of a block of ranks, and the
/// blocks by a balanced tree (TransportOptions::sum_blocks), half types accumulated in float32 and rounded once for
/// each of these sums: the bits depend neither on the MPI library nor on the path the bytes take. Every back end has
/// every operation.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Name of the axis in messages: "data", "tensor", "pipeline", "world".
  virtual const std::string& axis() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Type of the device whose tensors it moves.
  virtual at::DeviceType device_type() const = 0;
  /// How the bytes move, for the lines of the start: "self", "mpi, shared memory", "mpi, node by node", "nccl 2.28.9".
  virtual std::string back_end() const = 0;

  /// Says that many operations will be of views of `tensor`, on all ranks of the same part of it: a back end may be
  /// faster then. That of the host adds up tensors of shareable_zeros() where the ranks of a node have them; where they
  /// cannot all map them, it does as before (warn_of_unshared()). Collective.
  virtual void share(const at::Tensor& /*tensor*/) {}
  /// Whether share() is of use to any rank of the group.
  virtual bool may_share() const { return false; }

  /// In place: every rank's `tensor` becomes the reduction over the ranks.
  virtual Work all_reduce(const at::Tensor& tensor, ReduceOp op) = 0;
  /// The same of what `first` leaves in `tensor`: an operation of another group of the same back end, which may be in
  /// flight. Nobody waits in between: it begins when `first` is complete.
  virtual Work all_reduce_after(const Work& first, const at::Tensor& tensor, ReduceOp op) = 0;
  /// `input` holds size() equal parts; `output` becomes the reduction of part rank(). No aliasing,
  /// except that `output` may be exactly part rank() of `input`; the rest of `input` is unspecified
  /// afterwards.
  virtual Work reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) = 0;
  /// Part r of `output` becomes rank r's `input`. `input` may be exactly part rank() of `output`.
  virtual Work all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  /// Every rank's `tensor` becomes that of `root`.
  virtual Work broadcast(const at::Tensor& tensor, int root) = 0;
  /// All messages progress together; messages of one pair and direction match in the order of the
  /// list (and of the calls), and must have equal sizes. Empty tensors send nothing. Sending to
  /// oneself is allowed when a matching receive is in the same list. The only point-to-point
  /// operation.
  virtual Work exchange(std::vector<Transfer> transfers) = 0;
  /// Completes when all ranks of the group have started it.
  virtual Work barrier() = 0;
};

/// Makes progress on all host operations of the process that are in flight, without blocking: to be called between
/// layers, because MPI moves nothing by itself. Waiting for a Work or in an MpiGroup makes progress too; other blocking
/// calls (collective HDF5, plain MPI) do not, so none may wait for a rank that waits for an operation in flight here.
void progress();

}  // namespace vit_hybrid::comm
