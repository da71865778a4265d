// The NCCL back end: every operation on the axis' own stream, between two events.
#include "parallel/comm/nccl/nccl_communicator.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <functional>
#include <utility>
#include <vector>

#include "parallel/comm/communicator_base.h"
#include "parallel/comm/nccl/device_stream.h"
#include "parallel/comm/nccl/nccl_link.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/recorded_operations.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

ncclDataType_t nccl_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return ncclDouble;
    case at::kFloat:
      return ncclFloat;
    case at::kHalf:
      return ncclHalf;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kLong:
      return ncclInt64;
    case at::kInt:
      return ncclInt32;
    default:
      return ncclUint8;  // Byte and Bool
  }
}

ncclRedOp_t nccl_op(ReduceOp op) {
  return op == ReduceOp::kSum ? ncclSum : ncclMax;
}

size_t count(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel());
}

class NcclState final : public NotedState {
 public:
  NcclState(std::shared_ptr<NcclLink> link, std::shared_ptr<DeviceEvent> done, std::vector<at::Tensor> tensors)
      : link_(std::move(link)), done_(std::move(done)), tensors_(std::move(tensors)) {}

  // A trace has the host's times: it is launched.
  void begin() override { record_end(); }

  const DeviceEvent& done() const { return *done_; }

 private:
  void complete(BlockedScope& /*blocked*/) override {
    link_->check();
    link_->hold_caller(*done_);
  }
  bool try_complete() override {
    link_->check();
    return done_->query();
  }
  // The host does not wait; NcclLink counts what the stream waits.
  double blocked_seconds(double /*host_seconds*/) const override { return 0; }

  std::shared_ptr<NcclLink> link_;
  std::shared_ptr<DeviceEvent> done_;
  std::vector<at::Tensor> tensors_;
};

class NcclCommunicator final : public CommunicatorBase {
 public:
  NcclCommunicator(std::string axis, const MpiGroup& group, std::shared_ptr<NcclLink> link)
      : CommunicatorBase(std::move(axis), group.rank(), group.size(), link->device().type(), group.watched()),
        link_(std::move(link)) {}

  std::string back_end() const override { return "nccl " + nccl_version(); }
  const NcclLink& link() const { return *link_; }

 private:
  // start(comm, stream) begins operations of NCCL on `tensors`; see NcclLink::launch().
  template <class Start>
  Started launch(std::vector<at::Tensor> tensors, const char* call, Start start, const Work::State* first = nullptr) {
    const c10::DeviceGuard guard(link_->device());
    if (first != nullptr) link_->follow(event_of(*first));
    if (auto* const recorded = RecordedOperations::collecting()) {
      recorded->watch(axis(), [this](int64_t bytes, const std::function<void()>& replay) {
        const c10::DeviceGuard own(link_->device());
        link_->replay(note_replay(bytes), replay);
      });
    }
    return std::make_unique<NcclState>(link_, link_->launch(current(), call, start), std::move(tensors));
  }

  static const DeviceEvent& event_of(const Work::State& first) {
    const auto* const state = dynamic_cast<const NcclState*>(&first);
    VH_ASSERT(state != nullptr, "an operation of NCCL follows one of host tensors");
    return state->done();
  }

  Started start_all_reduce(const at::Tensor& tensor, ReduceOp op, const Work::State* first) override {
    const auto start = [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(), count(tensor), nccl_type(tensor.scalar_type()),
                           nccl_op(op), comm, stream);
    };
    return launch({tensor}, "ncclAllReduce", start, first);
  }

  Started start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    return launch({output, input}, "ncclReduceScatter", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(input.data_ptr(), output.data_ptr(), count(output), nccl_type(input.scalar_type()),
                               nccl_op(op), comm, stream);
    });
  }

  Started start_all_gather(const at::Tensor& output, const at::Tensor& input) override {
    return launch({output, input}, "ncclAllGather", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(input.data_ptr(), output.data_ptr(), count(input), nccl_type(input.scalar_type()), comm,
                           stream);
    });
  }

  Started start_broadcast(const at::Tensor& tensor, int root) override {
    return launch({tensor}, "ncclBroadcast", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(tensor.data_ptr(), tensor.data_ptr(), count(tensor), nccl_type(tensor.scalar_type()), root,
                           comm, stream);
    });
  }

  Started start_exchange(std::vector<Transfer> transfers) override {
    std::vector<at::Tensor> tensors;
    for (const Transfer& transfer : transfers)
      tensors.push_back(transfer.tensor);
    return launch(std::move(tensors), "ncclSend and ncclRecv", [&](ncclComm_t comm, cudaStream_t stream) {
      NcclGroup group;
      for (const auto& [direction, tensor, peer] : transfers) {
        const auto type = nccl_type(tensor.scalar_type());
        group.add(direction == Transfer::Direction::kSend
                      ? ncclSend(tensor.data_ptr(), count(tensor), type, peer, comm, stream)
                      : ncclRecv(tensor.data_ptr(), count(tensor), type, peer, comm, stream));
      }
      return group.end();
    });
  }

  Started start_barrier() override {
    if (!token_.defined()) token_ = at::zeros({1}, at::TensorOptions(at::kByte).device(link_->device()));
    return start_all_reduce(token_, ReduceOp::kMax, nullptr);
  }

  std::shared_ptr<NcclLink> link_;
  at::Tensor token_;  // what a barrier reduces
};

const NcclLink& link_of(const Communicator& world) {
  const auto* const nccl = dynamic_cast<const NcclCommunicator*>(&world);
  VH_ASSERT(nccl != nullptr, vit_hybrid::str("axis '", world.axis(), "' of ", world.size(), " ranks is not NCCL's"));
  return nccl->link();
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const std::string& axis, const MpiGroup& group, c10::Device device,
                                                     Communicator* world, const TransportOptions& options) {
  std::shared_ptr<NcclLink> link;
  if (world == nullptr && group.size() > 1) link = NcclLink::create(axis, group, device, options);
  if (world != nullptr && world->size() > 1) link = NcclLink::split(axis, link_of(*world), group, options);
  if (link == nullptr) return nullptr;
  return std::make_unique<NcclCommunicator>(axis, group, std::move(link));
}

std::string nccl_version() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return vit_hybrid::str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace vit_hybrid::comm
