// NcclLink: an owned NCCL communicator with the stream of its axis, and what is in flight on it.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <deque>
#include <memory>
#include <string>

#include "parallel/comm/mpi_group.h"
#include "parallel/comm/operation_slot.h"

namespace vit_hybrid::comm {

/// Throws Error(kIo) with NCCL's own text if `result` is an error; `call` names the function.
void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr);

/// The communicator is destroyed with it, except while an exception unwinds.
class NcclLink {
 public:
  /// From an id that is broadcast over `group`. Collective over `group`.
  static std::shared_ptr<NcclLink> create(const std::string& axis, const MpiGroup& group, c10::Device device);
  /// The part of `parent` whose ranks are those of `group`; null for a group of one. Collective over `parent`.
  static std::shared_ptr<NcclLink> split(const std::string& axis, const NcclLink& parent, const MpiGroup& group);

  NcclLink(const std::string& axis, ncclComm_t comm, c10::Device device);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  ncclComm_t comm() const { return comm_; }
  c10::Device device() const { return device_; }
  c10::cuda::CUDAStream stream() const { return stream_; }

  /// Operations that are started next run after what is on the caller's stream.
  void follow_caller();
  /// Event after what was put on the stream last. The operation stands in the slot until the device has done it.
  std::shared_ptr<at::cuda::CUDAEvent> finish(const OperationNote& note);
  /// Later work on the caller's stream runs after `done`; the time it stands still is counted, once it is known.
  void hold_caller(at::cuda::CUDAEvent& done);
  /// Throws Error(kIo) if NCCL found an error since (a lost connection, a dead peer).
  void check() const;

 private:
  struct InFlight {
    std::shared_ptr<at::cuda::CUDAEvent> done;
    std::unique_ptr<DeviceOperation> operation;
  };
  struct Hold {
    at::cuda::CUDAEvent before;
    at::cuda::CUDAEvent after;
  };

  DeviceStatus status(at::cuda::CUDAEvent& done) const;
  void forget_complete();
  void warm_up();

  std::string axis_;
  ncclComm_t comm_;
  c10::Device device_;
  c10::cuda::CUDAStream stream_;
  std::deque<InFlight> in_flight_;
  std::deque<Hold> holds_;
};

}  // namespace vit_hybrid::comm
