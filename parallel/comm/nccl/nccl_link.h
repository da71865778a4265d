// NcclLink: a NCCL communicator and its streams and events, opened, watched and aborted.
#pragma once

#include <c10/core/Device.h>
#include <nccl.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/nccl/device_marks.h"
#include "parallel/comm/nccl/device_stream.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/statistics.h"

namespace vit_hybrid::comm {

/// NCCL's text for an error, with what it knows besides.
std::string nccl_error_text(ncclResult_t result, ncclComm_t comm);

/// Throws if `result` is an error; `call` names the function: LostPeerError where another rank is gone, memory_error()
/// where the device has no memory left, else Error(kIo).
void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr);

/// Calls of NCCL that begin together. Inside, ncclInProgress is no more than ncclSuccess.
class NcclGroup {
 public:
  NcclGroup() { add(ncclGroupStart()); }
  void add(ncclResult_t result) {
    if (result_ == ncclSuccess && result != ncclInProgress) result_ = result;
  }
  /// The first error, else what came of the whole. Called once, whatever happened.
  ncclResult_t end() {
    const ncclResult_t ended = ncclGroupEnd();
    return result_ == ncclSuccess ? ended : result_;
  }

 private:
  ncclResult_t result_ = ncclSuccess;
};

/// Connecting takes the limit at most: then Error(kIo) names the axis. Operations are started in the calling thread.
///
/// A group is first connected without blocking, which is the only way to give up. In such a communicator every later
/// operation would be started by a thread made for it; so the one that is used is split off it, and blocks.
///
/// What a call returns says nothing of a communicator that does not block: ncclCommSplit() returns ncclSuccess, and
/// goes on in a thread. Only the communicator's state does, which finish() waits for.
class NcclComm {
 public:
  /// The ranks of `group`, from an id that is broadcast over it. Only to be split. Collective over `group`.
  static std::shared_ptr<NcclComm> connect(const std::string& axis, const MpiGroup& group, double limit_seconds);
  /// The ranks of `parent`, which connect() made, that give the same color (at least 0), in the order of `key`; null
  /// without a color. `most_blocks`: TransportOptions'. Collective over `parent`.
  static std::shared_ptr<NcclComm> split(const std::string& axis, const NcclComm& parent, std::optional<int> color,
                                         int key, int most_blocks = 0);

  NcclComm(std::string axis, ncclComm_t comm, double limit_seconds);
  /// Destroys it, except while an exception unwinds: then report_and_abort() has it aborted.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  ncclComm_t get() const { return comm_; }
  int rank() const;
  int size() const;

  /// Held around calls of NCCL. Once the job fails, all communicators are aborted under it, and it is not had again.
  static std::unique_lock<std::timed_mutex> enter();
  /// Returns when what `call` has begun is started, perhaps by a thread of NCCL. Throws as check_nccl() where `result`
  /// or what came of it is an error, and Error(kIo) where nothing comes of it within the limit. Not inside enter() or a
  /// group.
  void finish(ncclResult_t result, const char* call) const;
  /// What NCCL has found since: ncclSuccess, ncclInProgress, or an error.
  ncclResult_t error() const;
  /// The same, without waiting: nothing while another thread is inside NCCL.
  std::optional<ncclResult_t> error_unless_busy() const;

 private:
  ncclResult_t ask() const;

  std::string axis_;
  ncclComm_t comm_;
  double limit_seconds_;
};

/// Operations of one axis are started by one thread at a time, on the axis' own stream; events are made in the first
/// steps and used again.
class NcclLink {
 public:
  /// From an id that is broadcast over `group`. Collective over `group`.
  static std::shared_ptr<NcclLink> create(const std::string& axis, const MpiGroup& group, c10::Device device,
                                          const TransportOptions& options);
  /// The part of `parent`, which create() made, whose ranks are those of `group`; null for a group of one. Collective
  /// over `parent`.
  static std::shared_ptr<NcclLink> split(const std::string& axis, const NcclLink& parent, const MpiGroup& group,
                                         const TransportOptions& options);

  /// `root`, which may be null, is what further links are split off.
  NcclLink(std::string axis, std::shared_ptr<NcclComm> comm, std::shared_ptr<NcclComm> root, c10::Device device);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  const NcclComm& comm() const { return *comm_; }
  c10::Device device() const { return device_; }

  /// Calls start(ncclComm_t, cudaStream_t), which begins operations of NCCL, named `note`, and returns the result of
  /// `call`. They run after what is on the caller's stream. The result is an event after them; until the device has
  /// come to it the operation stands in the slot. Where RecordedOperations collects, the streams are being recorded:
  /// nothing is queried, and no slot is filled.
  template <class Start>
  std::shared_ptr<DeviceEvent> launch(const OperationNote& note, const char* call, Start start) {
    const BlockedScope blocked(note);  // NCCL may wait for others while it starts them
    follow_caller();
    auto begin = note.traced_since != 0 ? mark_on(stream_) : nullptr;
    ncclResult_t result = ncclSuccess;
    {
      const auto inside = NcclComm::enter();
      result = start(comm_->get(), stream_.handle());
    }
    comm_->finish(result, call);
    if (begin != nullptr) {
      trace::add_on_device(slice_of(note, trace::Kind::kOperation), std::move(begin), mark_on(stream_));
    }
    return put_in_slot(note, stream_);
  }
  /// Calls `start`, which puts recorded operations of this link on the caller's stream, named `note` together; they
  /// stand in the slot until the device is through.
  void replay(const OperationNote& note, const std::function<void()>& start);
  /// What is launched from now on runs after `done`, of another link.
  void follow(const DeviceEvent& done) { done.block(stream_); }
  /// Later work on the caller's stream runs after `done`; the time it stands still is counted, once it is known.
  void hold_caller(const DeviceEvent& done);
  /// Throws as check_nccl() if NCCL found an error since (a lost connection, a dead peer).
  void check() const;

 private:
  struct InFlight {
    std::shared_ptr<DeviceEvent> done;
    std::unique_ptr<DeviceOperation> operation;
  };
  struct Hold {
    std::shared_ptr<DeviceEvent> before;
    std::shared_ptr<DeviceEvent> after;
    const char* phase;  // of the host
  };

  void follow_caller();
  std::shared_ptr<DeviceEvent> put_in_slot(const OperationNote& note, const DeviceStream& stream);
  void forget_complete();
  void warm_up(const TransportOptions& options);
  void run_collectives(const OperationNote& note, float* values, size_t part);
  void run_exchange(const OperationNote& note, float* values);

  std::string axis_;
  std::shared_ptr<NcclComm> comm_;
  std::shared_ptr<NcclComm> root_;
  c10::Device device_;
  DeviceStream stream_;
  DeviceEvent ready_;  // on the caller's stream; a later record does not change what was made to wait for it
  ReusePool<DeviceEvent> events_;
  ReusePool<DeviceEvent> timing_events_;
  std::deque<InFlight> in_flight_;
  std::deque<Hold> holds_;
  StatisticsSource source_{[this] { forget_complete(); }};
};

}  // namespace vit_hybrid::comm
