// NcclLink: creation, order between streams, and errors.
#include "parallel/comm/nccl_link.h"

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstring>
#include <exception>
#include <utility>

#include "parallel/comm/statistics.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

// Pairs are connected at construction up to this size; in larger groups, neighbours.
constexpr int kLargestFullyConnected = 64;

std::string result_text(ncclResult_t result, ncclComm_t comm) {
  const char* const detail = ncclGetLastError(comm);
  const std::string text = ncclGetErrorString(result);
  return detail == nullptr || *detail == '\0' ? text : vit_hybrid::str(text, ": ", detail);
}

OperationNote connection_note(const std::string& axis) {
  return {axis, "connection by NCCL", 0, 0, run_position()};
}

}  // namespace

void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw Error(ErrorClass::kIo, vit_hybrid::str(call, " failed: ", result_text(result, comm)),
              "run again with NCCL_DEBUG=WARN to see NCCL's own messages");
}

std::shared_ptr<NcclLink> NcclLink::create(const std::string& axis, const MpiGroup& group, c10::Device device) {
  const OperationNote note = connection_note(axis);
  const BlockedScope blocked(note);
  const c10::cuda::CUDAGuard guard(device);
  ncclUniqueId id;
  std::memset(&id, 0, sizeof id);
  if (group.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  group.broadcast(&id, sizeof id, 0);
  ncclComm_t comm = nullptr;
  check_nccl(ncclCommInitRank(&comm, group.size(), id, group.rank()), "ncclCommInitRank");
  return std::make_shared<NcclLink>(axis, comm, device);
}

std::shared_ptr<NcclLink> NcclLink::split(const std::string& axis, const NcclLink& parent, const MpiGroup& group) {
  const OperationNote note = connection_note(axis);
  const BlockedScope blocked(note);
  const c10::cuda::CUDAGuard guard(parent.device());
  // A group is known by the rank in the parent of its first member.
  int color = 0;
  check_nccl(ncclCommUserRank(parent.comm(), &color), "ncclCommUserRank");
  group.broadcast(&color, sizeof color, 0);
  ncclComm_t comm = nullptr;
  check_nccl(ncclCommSplit(parent.comm(), group.size() == 1 ? NCCL_SPLIT_NOCOLOR : color, group.rank(), &comm, nullptr),
             "ncclCommSplit", parent.comm());
  return comm == nullptr ? nullptr : std::make_shared<NcclLink>(axis, comm, parent.device());
}

NcclLink::NcclLink(const std::string& axis, ncclComm_t comm, c10::Device device)
    : axis_(axis),
      comm_(comm),
      device_(device),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())) {
  warm_up();
}

NcclLink::~NcclLink() {
  if (std::uncaught_exceptions() > 0) return;
  const c10::cuda::CUDAGuard guard(device_);
  stream_.synchronize();
  in_flight_.clear();  // their probes look at the communicator
  ncclCommDestroy(comm_);
}

void NcclLink::follow_caller() {
  check();
  forget_complete();
  at::cuda::CUDAEvent ready;
  ready.record(c10::cuda::getCurrentCUDAStream(device_.index()));
  ready.block(stream_);
}

std::shared_ptr<at::cuda::CUDAEvent> NcclLink::finish(const OperationNote& note) {
  auto done = std::make_shared<at::cuda::CUDAEvent>();
  done->record(stream_);
  in_flight_.push_back(
      {done, std::make_unique<DeviceOperation>(note, [this, event = done.get()] { return status(*event); })});
  return done;
}

void NcclLink::hold_caller(at::cuda::CUDAEvent& done) {
  const auto caller = c10::cuda::getCurrentCUDAStream(device_.index());
  if (done.query()) return;  // nothing stands still
  holds_.push_back({at::cuda::CUDAEvent(cudaEventDefault), at::cuda::CUDAEvent(cudaEventDefault)});
  holds_.back().before.record(caller);
  done.block(caller);
  holds_.back().after.record(caller);
}

DeviceStatus NcclLink::status(at::cuda::CUDAEvent& done) const {
  ncclResult_t error = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &error);
  if (asked != ncclSuccess) error = asked;
  if (error != ncclSuccess && error != ncclInProgress) {
    return {DeviceStatus::Kind::kFailed, result_text(error, comm_)};
  }
  // Not CUDAEvent::query(), which throws: this may be the watchdog's thread.
  const cudaError_t state = cudaEventQuery(done.event());
  if (state == cudaSuccess) return {DeviceStatus::Kind::kComplete, {}};
  if (state == cudaErrorNotReady) return {DeviceStatus::Kind::kRunning, {}};
  return {DeviceStatus::Kind::kFailed, cudaGetErrorString(state)};
}

void NcclLink::check() const {
  ncclResult_t error = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &error), "ncclCommGetAsyncError", comm_);
  check_nccl(error, "an earlier operation of NCCL", comm_);
}

void NcclLink::forget_complete() {
  while (!in_flight_.empty() && in_flight_.front().done->query())
    in_flight_.pop_front();
  while (!holds_.empty() && holds_.front().after.query()) {
    add_blocked_seconds(axis_, holds_.front().before.elapsed_time(holds_.front().after) * 1e-3);
    holds_.pop_front();
  }
}

// NCCL connects at the first use of an operation or pair, which would be in the middle of the first step.
void NcclLink::warm_up() {
  int rank = 0;
  int size = 0;
  check_nccl(ncclCommUserRank(comm_, &rank), "ncclCommUserRank");
  check_nccl(ncclCommCount(comm_, &size), "ncclCommCount");
  const MemoryScope scope(MemoryClass::kCommunication);
  const c10::cuda::CUDAGuard guard(device_);
  const at::Tensor one = at::zeros({1}, at::TensorOptions(at::kFloat).device(device_));
  const at::Tensor many = at::zeros({size}, one.options());
  auto* const small = one.data_ptr<float>();
  auto* const large = many.data_ptr<float>();
  follow_caller();
  check_nccl(ncclAllReduce(small, small, 1, ncclFloat, ncclSum, comm_, stream_), "ncclAllReduce", comm_);
  check_nccl(ncclReduceScatter(large, small, 1, ncclFloat, ncclSum, comm_, stream_), "ncclReduceScatter", comm_);
  check_nccl(ncclAllGather(small, large, 1, ncclFloat, comm_, stream_), "ncclAllGather", comm_);
  check_nccl(ncclBroadcast(small, small, 1, ncclFloat, 0, comm_, stream_), "ncclBroadcast", comm_);
  check_nccl(ncclGroupStart(), "ncclGroupStart");
  for (int peer = 0; peer < size; ++peer) {
    const int distance = (peer - rank + size) % size;
    if (distance == 0 || (size > kLargestFullyConnected && distance != 1 && distance != size - 1)) continue;
    check_nccl(ncclSend(small, 1, ncclFloat, peer, comm_, stream_), "ncclSend", comm_);
    check_nccl(ncclRecv(large + peer, 1, ncclFloat, peer, comm_, stream_), "ncclRecv", comm_);
  }
  check_nccl(ncclGroupEnd(), "ncclGroupEnd", comm_);
  stream_.synchronize();
  check();
}

}  // namespace vit_hybrid::comm
