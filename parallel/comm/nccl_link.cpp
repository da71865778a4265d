// NcclLink: order between streams, and errors.
#include "parallel/comm/nccl_link.h"

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>

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

}  // namespace

std::shared_ptr<NcclLink> NcclLink::create(const std::string& axis, const MpiGroup& group, c10::Device device,
                                           double limit_seconds) {
  const c10::cuda::CUDAGuard guard(device);
  auto root = NcclComm::connect(axis, group, limit_seconds);
  auto comm = NcclComm::split(axis, *root, 0, group.rank());
  return std::make_shared<NcclLink>(axis, std::move(comm), std::move(root), device);
}

std::shared_ptr<NcclLink> NcclLink::split(const std::string& axis, const NcclLink& parent, const MpiGroup& group) {
  const c10::cuda::CUDAGuard guard(parent.device());
  VH_ASSERT(parent.root_ != nullptr, vit_hybrid::str("axis '", axis, "' is split off one that was split off itself"));
  // A group is known by the rank in the parent of its first member.
  int color = parent.comm().rank();
  group.broadcast(&color, sizeof color, 0);
  auto comm =
      NcclComm::split(axis, *parent.root_, group.size() == 1 ? std::nullopt : std::optional(color), group.rank());
  return comm == nullptr ? nullptr : std::make_shared<NcclLink>(axis, std::move(comm), nullptr, parent.device());
}

NcclLink::NcclLink(std::string axis, std::shared_ptr<NcclComm> comm, std::shared_ptr<NcclComm> root, c10::Device device)
    : axis_(std::move(axis)),
      comm_(std::move(comm)),
      root_(std::move(root)),
      device_(device),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
      events_([] { return std::make_shared<Event>(); }),
      timing_events_([] { return std::make_shared<Event>(cudaEventDefault); }) {
  warm_up();
}

NcclLink::~NcclLink() {
  if (std::uncaught_exceptions() > 0) return;
  const c10::cuda::CUDAGuard guard(device_);
  stream_.synchronize();
  in_flight_.clear();  // their probes look at the communicator
}

void NcclLink::follow_caller() {
  check();
  forget_complete();
  ready_.record(c10::cuda::getCurrentCUDAStream(device_.index()));
  ready_.block(stream_);
}

std::shared_ptr<NcclLink::Event> NcclLink::put_in_slot(const OperationNote& note) {
  auto done = events_.take();
  done->record(stream_);
  in_flight_.push_back(
      {done, std::make_unique<DeviceOperation>(note, [this, event = done.get()] { return status(*event); })});
  return done;
}

void NcclLink::hold_caller(Event& done) {
  const auto caller = c10::cuda::getCurrentCUDAStream(device_.index());
  if (done.query()) return;  // nothing stands still
  holds_.push_back({timing_events_.take(), timing_events_.take()});
  holds_.back().before->record(caller);
  done.block(caller);
  holds_.back().after->record(caller);
}

DeviceStatus NcclLink::status(Event& done) const {
  // The watchdog must not wait for a thread that hangs in NCCL: its blocked scope tells of it.
  const auto error = comm_->error_unless_busy();
  if (error && *error != ncclSuccess && *error != ncclInProgress) {
    return {DeviceStatus::Kind::kFailed, nccl_error_text(*error, comm_->get())};
  }
  // Not CUDAEvent::query(), which throws: this may be the watchdog's thread. Nor without the device: a thread begins
  // with GPU 0, and the query would make a context there.
  cudaSetDevice(device_.index());
  const cudaError_t state = cudaEventQuery(done.event());
  if (state == cudaSuccess) return {DeviceStatus::Kind::kComplete, {}};
  if (state == cudaErrorNotReady) return {DeviceStatus::Kind::kRunning, {}};
  return {DeviceStatus::Kind::kFailed, cudaGetErrorString(state)};
}

void NcclLink::check() const {
  check_nccl(comm_->error(), "an earlier operation of NCCL", comm_->get());
}

void NcclLink::forget_complete() {
  while (!in_flight_.empty() && in_flight_.front().done->query())
    in_flight_.pop_front();
  while (!holds_.empty() && holds_.front().after->query()) {
    add_blocked_seconds(axis_, holds_.front().before->elapsed_time(*holds_.front().after) * 1e-3);
    holds_.pop_front();
  }
}

// NCCL connects at the first use of an operation or pair, which would be in the middle of the first step.
void NcclLink::warm_up() {
  const OperationNote note{axis_, "first operation of NCCL", 0, 0, run_position()};
  const int rank = comm_->rank();
  const int size = comm_->size();
  const MemoryScope scope(MemoryClass::kCommunication);
  const c10::cuda::CUDAGuard guard(device_);
  const at::Tensor one = at::zeros({1}, at::TensorOptions(at::kFloat).device(device_));
  const at::Tensor many = at::zeros({size}, one.options());
  auto* const small = one.data_ptr<float>();
  auto* const large = many.data_ptr<float>();
  launch(note, "ncclAllReduce", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(small, small, 1, ncclFloat, ncclSum, comm, stream);
  });
  launch(note, "ncclReduceScatter", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclReduceScatter(large, small, 1, ncclFloat, ncclSum, comm, stream);
  });
  launch(note, "ncclAllGather",
         [&](ncclComm_t comm, cudaStream_t stream) { return ncclAllGather(small, large, 1, ncclFloat, comm, stream); });
  launch(note, "ncclBroadcast", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(small, small, 1, ncclFloat, 0, comm, stream);
  });
  launch(note, "ncclSend and ncclRecv", [&](ncclComm_t comm, cudaStream_t stream) {
    NcclGroup group;
    for (int peer = 0; peer < size; ++peer) {
      const int distance = (peer - rank + size) % size;
      if (distance == 0 || (size > kLargestFullyConnected && distance != 1 && distance != size - 1)) continue;
      group.add(ncclSend(small, 1, ncclFloat, peer, comm, stream));
      group.add(ncclRecv(large + peer, 1, ncclFloat, peer, comm, stream));
    }
    return group.end();
  });
  const BlockedScope blocked(note);
  stream_.synchronize();
  check();
}

}  // namespace vit_hybrid::comm
