// CommunicatorBase: what all communicators check and note, whatever moves their bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/operation.h"

namespace vit_hybrid::comm {

class WatchedGroup;

/// Copies the bytes of `input` to `output`, of equal size, on the current stream; nothing if they are
/// the same memory.
void copy_values(const at::Tensor& output, const at::Tensor& input);

/// An operation in flight that knows its name: waiting for it shows in the slot and the statistics.
class NotedState : public Work::State {
 public:
  void wait() final;
  bool test() final { return try_complete(); }

  /// Called once, when the operation has its name: may do the first step.
  virtual void begin() {}

  void set_note(OperationNote note) { note_ = std::move(note); }
  const OperationNote& note() const { return note_; }
  /// Its slice of a trace ends here, where it is complete or, on a device, launched. To be called once.
  void record_end() const;

 protected:
  /// Returns when the operation is complete; `blocked` takes remarks.
  virtual void complete(class BlockedScope& blocked) = 0;
  virtual bool try_complete() = 0;
  /// Seconds that the wait cost, given those the host was blocked.
  virtual double blocked_seconds(double host_seconds) const { return host_seconds; }

 private:
  OperationNote note_;
};

/// The Communicator of every back end: checks the arguments (Error(kInternal) names the operation, axis, value and what
/// is allowed), counts and notes the operation, and leaves the moving of at least one byte to start_...(). Those return
/// null when already complete.
class CommunicatorBase : public Communicator {
 public:
  const std::string& axis() const final { return axis_; }
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  at::DeviceType device_type() const final { return device_type_; }

  Work all_reduce(const at::Tensor& tensor, ReduceOp op) final;
  Work all_reduce_after(const Work& first, const at::Tensor& tensor, ReduceOp op) final;
  Work reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) final;
  Work all_gather(const at::Tensor& output, const at::Tensor& input) final;
  Work broadcast(const at::Tensor& tensor, int root) final;
  Work exchange(std::vector<Transfer> transfers) final;
  Work barrier() final;

 protected:
  using Started = std::unique_ptr<NotedState>;

  /// `watched` may be null: then nobody waits here for others.
  CommunicatorBase(std::string axis, int rank, int size, at::DeviceType device_type,
                   std::shared_ptr<WatchedGroup> watched);

  /// It is to begin when `first` is complete; null: now.
  virtual Started start_all_reduce(const at::Tensor& tensor, ReduceOp op, const Work::State* first) = 0;
  virtual Started start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) = 0;
  virtual Started start_all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual Started start_broadcast(const at::Tensor& tensor, int root) = 0;
  /// Only messages to and from other ranks, none empty.
  virtual Started start_exchange(std::vector<Transfer> transfers) = 0;
  virtual Started start_barrier() = 0;

  /// Note of the operation that is being started.
  const OperationNote& current() const { return current_; }
  /// Of recorded operations that a replay starts, of so many bytes together: the group's ranks replay the same ones.
  const OperationNote& note_replay(int64_t bytes) { return note("recorded operations", bytes, /*is_of_all=*/true); }

 private:
  /// Counts and notes the operation, and has start() begin it; `is_empty`: there is nothing to move.
  template <class Start>
  Work run(Operation operation, int64_t bytes, bool is_empty, Start start);
  /// `is_of_all`: all ranks of the group take part.
  const OperationNote& note(std::string_view operation, int64_t bytes, bool is_of_all);
  Work launched(Started started);
  void record_messages(const std::vector<Transfer>& transfers) const;

  std::string axis_;
  int rank_;
  int size_;
  at::DeviceType device_type_;
  std::shared_ptr<WatchedGroup> watched_;
  OperationNote current_;
};

}  // namespace vit_hybrid::comm
