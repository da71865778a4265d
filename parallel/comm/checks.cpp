// Checks of the arguments of every operation.
#include "parallel/comm/checks.h"

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>

#include "src/base/error.h"
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
            "tensors of type Bool are not summed, allowed are max (or) and min (and)");
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

}  // namespace

void check_all_reduce(const Communicator& group, const at::Tensor& tensor, ReduceOp op) {
  const Check check(group, Operation::kAllReduce);
  check.tensor(tensor, "tensor");
  check.reduction(tensor, op);
}

void check_reduce_scatter(const Communicator& group, const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  const Check check(group, Operation::kReduceScatter);
  check.tensor(output, "output");
  check.tensor(input, "input");
  check.reduction(input, op);
  check.parts(input, "input", output, "output");
}

void check_all_gather(const Communicator& group, const at::Tensor& output, const at::Tensor& input) {
  const Check check(group, Operation::kAllGather);
  check.tensor(output, "output");
  check.tensor(input, "input");
  check.parts(output, "output", input, "input");
}

void check_broadcast(const Communicator& group, const at::Tensor& tensor, int root) {
  const Check check(group, Operation::kBroadcast);
  check.tensor(tensor, "tensor");
  check.member(root, "root");
}

void check_exchange(const Communicator& group, const std::vector<Transfer>& transfers) {
  const Check check(group, Operation::kExchange);
  for (const Transfer& transfer : transfers) {
    check.tensor(transfer.tensor, "tensor");
    check.member(transfer.peer, "peer");
  }
  check_own_messages(check, group, transfers);
}

}  // namespace vit_hybrid::comm
