// Checks of the arguments of every operation, and the notes that each leaves.
#include "parallel/comm/communicator_base.h"

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <utility>

#include "parallel/comm/node_board.h"
#include "parallel/comm/recorded_operations.h"
#include "parallel/comm/statistics.h"
#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                               at::kLong,   at::kInt,   at::kByte, at::kBool};

// One operation's checks: they share the head of the message.
class Check {
 public:
  Check(const Communicator& group, Operation operation) : group_(group), operation_(operation) {}

  void require(bool condition, const std::string& message) const {
    if (condition) return;
    throw Error(ErrorClass::kInternal,
                vit_hybrid::str(operation_name(operation_), " on axis '", group_.axis(), "': ", message));
  }

  void tensor(const at::Tensor& tensor, const char* name) const {
    require(tensor.defined(), vit_hybrid::str("the ", name, " is not defined"));
    require(tensor.device().type() == group_.device_type(),
            vit_hybrid::str("the ", name, " is on ", tensor.device().str(), ", tensors must be on ",
                            c10::DeviceTypeName(group_.device_type(), true)));
    const bool known = std::find(kTypes.begin(), kTypes.end(), tensor.scalar_type()) != kTypes.end();
    require(known, vit_hybrid::str("the ", name, " has type ", tensor.scalar_type(),
                                   ", allowed are Double, Float, Half, BFloat16, Long, Int, Byte and Bool"));
    require(tensor.is_contiguous(), vit_hybrid::str("the ", name, " of shape ", tensor.sizes(), " and strides ",
                                                    tensor.strides(), " is not contiguous"));
  }

  void reduction(const at::Tensor& tensor, ReduceOp op) const {
    require(tensor.scalar_type() != at::kBool || op != ReduceOp::kSum,
            "tensors of type Bool are not summed, allowed is max (or)");
  }

  // `whole` is size() times `part`; the two are disjoint, or `part` lies at its place in `whole`.
  void parts(const at::Tensor& whole, const char* whole_name, const at::Tensor& part, const char* part_name) const {
    require(whole.scalar_type() == part.scalar_type(),
            vit_hybrid::str("the ", whole_name, " has type ", whole.scalar_type(), ", the ", part_name, " ",
                            part.scalar_type()));
    require(whole.numel() == part.numel() * group_.size(),
            vit_hybrid::str("the ", whole_name, " has ", whole.numel(), " elements, it must have ", group_.size(),
                            " times the ", part.numel(), " of the ", part_name));
    if (part.numel() == 0) return;
    const auto* const begin = static_cast<const char*>(whole.const_data_ptr());
    const auto* const inner = static_cast<const char*>(part.const_data_ptr());
    const bool disjoint = inner + part.nbytes() <= begin || begin + whole.nbytes() <= inner;
    const bool in_place = inner == begin + static_cast<size_t>(group_.rank()) * part.nbytes();
    require(disjoint || in_place, vit_hybrid::str("the ", part_name, " overlaps the ", whole_name,
                                                  " and is not exactly its part ", group_.rank()));
  }

  void member(int rank, const char* name) const {
    require(rank >= 0 && rank < group_.size(),
            vit_hybrid::str(name, " ", rank, " is not a rank of the group, allowed are 0 to ", group_.size() - 1));
  }

 private:
  const Communicator& group_;
  Operation operation_;
};

// Messages to oneself, in order: each send has its receive.
void check_own_messages(const Check& check, const Communicator& group, const std::vector<Transfer>& transfers) {
  std::vector<const at::Tensor*> sent;
  std::vector<const at::Tensor*> received;
  for (const Transfer& transfer : transfers) {
    if (transfer.peer != group.rank()) continue;
    const bool sends = transfer.direction == Transfer::Direction::kSend;
    (sends ? sent : received).push_back(&transfer.tensor);
  }
  check.require(sent.size() == received.size(), vit_hybrid::str(sent.size(), " messages are sent to the own rank and ",
                                                                received.size(), " are received from it"));
  for (size_t i = 0; i < sent.size(); ++i) {
    check.require(sent[i]->nbytes() == received[i]->nbytes(),
                  vit_hybrid::str("a message of ", sent[i]->nbytes(), " bytes to the own rank is received as ",
                                  received[i]->nbytes()));
  }
}

int64_t byte_count(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

int64_t bytes_sent(const std::vector<Transfer>& transfers) {
  int64_t bytes = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.direction == Transfer::Direction::kSend) bytes += byte_count(transfer.tensor);
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

}  // namespace

void copy_values(const at::Tensor& output, const at::Tensor& input) {
  if (output.data_ptr() == input.data_ptr()) return;
  // variable_data(): a communication is no event for autograd, whatever the back end.
  output.variable_data().view(-1).view(at::kByte).copy_(input.variable_data().view(-1).view(at::kByte),
                                                        /*non_blocking=*/true);
}

namespace {

// Of an operation that is complete now.
void record_operation(const OperationNote& note) {
  if (note.traced_since == 0) return;
  trace::Event slice = slice_of(note, trace::Kind::kOperation);
  slice.end = trace::now();
  trace::add(slice);
}

}  // namespace

void NotedState::record_end() const {
  record_operation(note_);
}

void NotedState::wait() {
  const WaitingTime waiting;
  const double without_core = seconds_without_core();
  BlockedScope blocked(note_);
  complete(blocked);
  add_blocked_seconds(
      note_.axis, {run_position().phase, blocked_seconds(blocked.seconds()), seconds_without_core() - without_core});
}

CommunicatorBase::CommunicatorBase(std::string axis, int rank, int size, at::DeviceType device_type,
                                   std::shared_ptr<WatchedGroup> watched)
    : axis_(std::move(axis)), rank_(rank), size_(size), device_type_(device_type), watched_(std::move(watched)) {
  if (watched_ == nullptr) return;
  watched_->set_axis(axis_);
  current_.group = watched_->id();
}

const OperationNote& CommunicatorBase::note(std::string_view operation, int64_t bytes, bool is_of_all) {
  current_.axis = axis_;
  current_.operation = operation;
  current_.bytes = bytes;
  current_.position = run_position();
  ++current_.sequence;
  current_.turn = watched_ == nullptr || !is_of_all ? 0 : watched_->next_turn(operation);
  // In a group of one nothing moves, nor does what is recorded before its replay.
  const bool moves = size_ > 1 && RecordedOperations::collecting() == nullptr;
  current_.traced_since = trace::is_recording() && moves ? trace::now() : 0;
  return current_;
}

Work CommunicatorBase::launched(Started started) {
  if (started == nullptr) {
    record_operation(current_);
    return Work();
  }
  started->set_note(current_);
  NotedState& state = *started;
  Work work(std::move(started));  // from here on an error leaks the state, as one in wait() does
  state.begin();
  return work;
}

template <class Start>
Work CommunicatorBase::run(Operation operation, int64_t bytes, bool is_empty, Start start) {
  // Exchanges are between some of the ranks: what others have begun says nothing of them.
  note(operation_name(operation), bytes, operation != Operation::kExchange);
  count_operation(axis_, size_, operation, bytes);
  const trace::ProfilerRange range(operation_name(operation).data(), axis_.c_str());
  return launched(is_empty ? nullptr : start());
}

// Of each message the half that this rank has; the exchange's own slice is what viewers tie the arrows to.
void CommunicatorBase::record_messages(const std::vector<Transfer>& transfers) const {
  if (current_.traced_since == 0) return;
  for (const Transfer& transfer : transfers) {
    const bool sends = transfer.direction == Transfer::Direction::kSend;
    trace::Event message = slice_of(current_, sends ? trace::Kind::kSend : trace::Kind::kReceive);
    message.bytes = byte_count(transfer.tensor);
    message.peer = watched_ == nullptr ? transfer.peer : watched_->world_rank(transfer.peer);
    trace::add(message);
  }
}

Work CommunicatorBase::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  return all_reduce_after(Work(), tensor, op);
}

Work CommunicatorBase::all_reduce_after(const Work& first, const at::Tensor& tensor, ReduceOp op) {
  const Check check(*this, Operation::kAllReduce);
  check.tensor(tensor, "tensor");
  check.reduction(tensor, op);
  return run(Operation::kAllReduce, byte_count(tensor), tensor.numel() == 0,
             [&] { return start_all_reduce(tensor, op, first.state()); });
}

Work CommunicatorBase::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  const Check check(*this, Operation::kReduceScatter);
  check.tensor(output, "output");
  check.tensor(input, "input");
  check.reduction(input, op);
  check.parts(input, "input", output, "output");
  return run(Operation::kReduceScatter, byte_count(input), input.numel() == 0,
             [&] { return start_reduce_scatter(output, input, op); });
}

Work CommunicatorBase::all_gather(const at::Tensor& output, const at::Tensor& input) {
  const Check check(*this, Operation::kAllGather);
  check.tensor(output, "output");
  check.tensor(input, "input");
  check.parts(output, "output", input, "input");
  return run(Operation::kAllGather, byte_count(output), output.numel() == 0,
             [&] { return start_all_gather(output, input); });
}

Work CommunicatorBase::broadcast(const at::Tensor& tensor, int root) {
  const Check check(*this, Operation::kBroadcast);
  check.tensor(tensor, "tensor");
  check.member(root, "root");
  return run(Operation::kBroadcast, byte_count(tensor), tensor.numel() == 0,
             [&] { return start_broadcast(tensor, root); });
}

Work CommunicatorBase::exchange(std::vector<Transfer> transfers) {
  const Check check(*this, Operation::kExchange);
  for (const Transfer& transfer : transfers) {
    check.tensor(transfer.tensor, "tensor");
    check.member(transfer.peer, "peer");
  }
  check_own_messages(check, *this, transfers);
  const int64_t bytes = bytes_sent(transfers);
  std::erase_if(transfers, [](const Transfer& t) { return t.tensor.numel() == 0; });
  copy_own_messages(transfers, rank_);
  return run(Operation::kExchange, bytes, transfers.empty(), [&] {
    record_messages(transfers);
    return start_exchange(std::move(transfers));
  });
}

Work CommunicatorBase::barrier() {
  return run(Operation::kBarrier, 0, /*is_empty=*/false, [&] { return start_barrier(); });
}

}  // namespace vit_hybrid::comm
