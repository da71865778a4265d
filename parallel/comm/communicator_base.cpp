// CommunicatorBase: from a checked call to a noted Work.
#include "parallel/comm/communicator_base.h"

#include <deque>
#include <utility>

#include "parallel/comm/checks.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/operation_slot.h"
#include "parallel/comm/statistics.h"

namespace vit_hybrid::comm {

namespace {

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

int64_t bytes_sent(const std::vector<Transfer>& transfers) {
  int64_t bytes = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.direction == Transfer::Direction::kSend) bytes += bytes_of(transfer.tensor);
  }
  return bytes;
}

// Copies the messages to the own rank, in order, and leaves those to and from others.
void copy_own_messages(std::vector<Transfer>& transfers, int own_rank) {
  std::vector<Transfer> sent;
  std::vector<Transfer> received;
  std::vector<Transfer> others;
  for (Transfer& transfer : transfers) {
    const bool sends = transfer.direction == Transfer::Direction::kSend;
    auto& list = transfer.peer != own_rank ? others : sends ? sent : received;
    list.push_back(std::move(transfer));
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    copy_values(received[i].tensor, sent[i].tensor);
  }
  transfers = std::move(others);
}

// Several operations as one.
class CoalescedState final : public NotedState {
 public:
  explicit CoalescedState(std::deque<std::unique_ptr<NotedState>> parts) : parts_(std::move(parts)) {}

  void begin() override {
    for (const auto& part : parts_) {
      part->set_note(note());
      part->begin();
    }
  }
  void abandon() noexcept override {
    for (const auto& part : parts_)
      part->abandon();
  }

 private:
  void complete(BlockedScope& blocked) override {
    for (; !parts_.empty(); parts_.pop_front())
      complete_part(*parts_.front(), blocked);
  }
  bool try_complete() override {
    while (!parts_.empty() && parts_.front()->test())
      parts_.pop_front();
    return parts_.empty();
  }

  std::deque<std::unique_ptr<NotedState>> parts_;
};

}  // namespace

void copy_values(const at::Tensor& output, const at::Tensor& input) {
  if (output.data_ptr() == input.data_ptr()) return;
  // variable_data(): a communication is no event for autograd, whatever the back end.
  output.variable_data().view(-1).view(at::kByte).copy_(input.variable_data().view(-1).view(at::kByte),
                                                        /*non_blocking=*/true);
}

void NotedState::wait() {
  BlockedScope blocked(note_);
  complete(blocked);
  add_blocked_seconds(note_.axis, blocked_seconds(blocked.seconds()));
}

CommunicatorBase::CommunicatorBase(std::string axis, int rank, int size, at::DeviceType device_type,
                                   std::shared_ptr<WatchedGroup> watched)
    : axis_(std::move(axis)), rank_(rank), size_(size), device_type_(device_type), watched_(std::move(watched)) {
  if (watched_ == nullptr) return;
  watched_->set_axis(axis_);
  current_.group = watched_->id();
}

void CommunicatorBase::note(Operation operation, int64_t bytes) {
  current_.axis = axis_;
  current_.operation = operation_name(operation);
  current_.bytes = bytes;
  current_.position = run_position();
  ++current_.sequence;
  // Exchanges are between some of the ranks: what others have begun says nothing of them.
  current_.turn =
      watched_ == nullptr || operation == Operation::kExchange ? 0 : watched_->next_turn(current_.operation);
  count_operation(axis_, size_, operation, bytes);
}

Work CommunicatorBase::launched(Started started) {
  if (started == nullptr) return Work();
  started->set_note(current_);
  NotedState& state = *started;
  Work work(std::move(started));  // from here on an error leaks the state, as one in wait() does
  state.begin();
  return work;
}

Work CommunicatorBase::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_all_reduce(*this, tensor, op);
  note(Operation::kAllReduce, bytes_of(tensor));
  if (tensor.numel() == 0) return Work();
  return launched(start_all_reduce(tensor, op));
}

Work CommunicatorBase::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  check_reduce_scatter(*this, output, input, op);
  note(Operation::kReduceScatter, bytes_of(input));
  if (input.numel() == 0) return Work();
  return launched(start_reduce_scatter(output, input, op));
}

Work CommunicatorBase::all_gather(const at::Tensor& output, const at::Tensor& input) {
  check_all_gather(*this, output, input);
  note(Operation::kAllGather, bytes_of(output));
  if (output.numel() == 0) return Work();
  return launched(start_all_gather(output, input));
}

Work CommunicatorBase::all_gather_coalesced(std::vector<Gather> gathers) {
  for (const Gather& gather : gathers)
    check_all_gather(*this, gather.output, gather.input);
  int64_t bytes = 0;
  for (const Gather& gather : gathers) {
    note(Operation::kAllGather, bytes_of(gather.output));
    bytes += bytes_of(gather.output);
  }
  current_.bytes = bytes;
  std::erase_if(gathers, [](const Gather& gather) { return gather.output.numel() == 0; });
  if (gathers.empty()) return Work();
  return launched(start_all_gathers(gathers));
}

CommunicatorBase::Started CommunicatorBase::start_all_gathers(const std::vector<Gather>& gathers) {
  std::deque<Started> parts;
  for (const auto& [output, input] : gathers) {
    if (Started part = start_all_gather(output, input)) parts.push_back(std::move(part));
  }
  return parts.empty() ? nullptr : std::make_unique<CoalescedState>(std::move(parts));
}

Work CommunicatorBase::broadcast(const at::Tensor& tensor, int root) {
  check_broadcast(*this, tensor, root);
  note(Operation::kBroadcast, bytes_of(tensor));
  if (tensor.numel() == 0) return Work();
  return launched(start_broadcast(tensor, root));
}

Work CommunicatorBase::exchange(std::vector<Transfer> transfers) {
  check_exchange(*this, transfers);
  note(Operation::kExchange, bytes_sent(transfers));
  std::erase_if(transfers, [](const Transfer& t) { return t.tensor.numel() == 0; });
  copy_own_messages(transfers, rank_);
  if (transfers.empty()) return Work();
  return launched(start_exchange(std::move(transfers)));
}

Work CommunicatorBase::barrier() {
  note(Operation::kBarrier, 0);
  return launched(start_barrier());
}

}  // namespace vit_hybrid::comm
