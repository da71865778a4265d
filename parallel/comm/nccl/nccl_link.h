// NcclLink: a communicator of NCCL with the stream of its axis, and what is in flight on it.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>
#include <memory>
#include <string>

#include "parallel/comm/nccl/nccl_comm.h"
#include "parallel/comm/operation_slot.h"
#include "parallel/comm/reuse_pool.h"
#include "parallel/comm/statistics.h"
#include "parallel/comm/transport_options.h"

namespace vit_hybrid::comm {

/// Operations of one axis are started by one thread at a time, on the axis' own stream; events are made in the first
/// steps and used again.
class NcclLink {
 public:
  using Event = at::cuda::CUDAEvent;

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
  c10::cuda::CUDAStream stream() const { return stream_; }

  /// Calls start(ncclComm_t, cudaStream_t), which begins operations of NCCL, named `note`, and returns the result of
  /// `call`. They run after what is on the caller's stream. The result is an event after them; until the device has
  /// come to it the operation stands in the slot.
  template <class Start>
  std::shared_ptr<Event> launch(const OperationNote& note, const char* call, Start start) {
    const BlockedScope blocked(note);  // NCCL may wait for others while it starts them
    follow_caller();
    ncclResult_t result = ncclSuccess;
    {
      const auto inside = NcclComm::enter();
      result = start(comm_->get(), stream_.stream());
    }
    comm_->finish(result, call);
    return put_in_slot(note);
  }
  /// Later work on the caller's stream runs after `done`; the time it stands still is counted, once it is known.
  void hold_caller(Event& done);
  /// Throws as check_nccl() if NCCL found an error since (a lost connection, a dead peer).
  void check() const;

 private:
  struct InFlight {
    std::shared_ptr<Event> done;
    std::unique_ptr<DeviceOperation> operation;
  };
  struct Hold {
    std::shared_ptr<Event> before;
    std::shared_ptr<Event> after;
  };

  void follow_caller();
  std::shared_ptr<Event> put_in_slot(const OperationNote& note);
  DeviceStatus status(Event& done) const;
  void forget_complete();
  void warm_up(bool connects_neighbours);
  void run_collectives(const OperationNote& note, float* values, size_t part);
  void run_exchange(const OperationNote& note, float* values);

  std::string axis_;
  std::shared_ptr<NcclComm> comm_;
  std::shared_ptr<NcclComm> root_;
  c10::Device device_;
  c10::cuda::CUDAStream stream_;
  Event ready_;  // on the caller's stream; a later record does not change what was made to wait for it
  ReusePool<Event> events_;
  ReusePool<Event> timing_events_;
  std::deque<InFlight> in_flight_;
  std::deque<Hold> holds_;
  StatisticsSource source_{[this] { forget_complete(); }};
};

}  // namespace vit_hybrid::comm
