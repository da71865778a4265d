// The rounds of all_reduce, reduce_scatter, all_gather and broadcast through shared memory.
#include "parallel/comm/shared_memory/shared_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "parallel/comm/mpi/rank_order.h"
#include "parallel/comm/node_board.h"
#include "src/base/error.h"
#include "src/base/partition.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

// One number that says which operation a rank is in. 40 bits of the size suffice to tell sizes apart.
uint64_t make_signature(Operation kind, int detail, int64_t bytes) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(detail) << 40 |
         (static_cast<uint64_t>(bytes) & ((uint64_t{1} << 40) - 1));
}

std::string signature_text(uint64_t signature) {
  return str(operation_name(static_cast<Operation>(signature >> 56)), " of ", signature & ((uint64_t{1} << 40) - 1),
             " bytes (kind ", signature >> 40 & 0xffff, ")");
}

// A collective as a sequence of rounds (see SharedSlots): put in, reduce, take out. Consecutive rounds
// overlap as far as there are slots.
class SharedTask : public HostTask {
 public:
  bool advance() final {
    if (!begun_) {
      if (!link_->queue.is_first(*this)) return false;
      begun_ = true;
      first_round_ = link_->slots.next_round();
      link_->slots.take_rounds(num_rounds_);
    }
    bool moved = true;
    while (moved && left_ < num_rounds_) {
      moved = enter_rounds();
      moved = (phases_ == Phases::kThree && reduce_rounds()) || moved;
      moved = leave_rounds() || moved;
    }
    if (left_ < num_rounds_) return false;
    link_->queue.leave(*this);
    return true;
  }

  std::vector<int> awaits() const final {
    if (!begun_ || left_ == num_rounds_) return {};
    return link_->watched->to_world(slots().missing(global(left_), phases_ == Phases::kThree));
  }

 protected:
  enum class Phases { kTwo, kThree };  // without and with reduce_share()

  // `kind` and `bytes` (and the reduction) are compared between the ranks in every round.
  SharedTask(std::shared_ptr<SharedLink> link, Operation kind, int64_t bytes, int detail, int64_t num_rounds,
             Phases phases)
      : link_(std::move(link)),
        signature_(make_signature(kind, detail, bytes)),
        num_rounds_(num_rounds),
        phases_(phases) {
    link_->queue.enter(*this);
  }

  virtual void put_in(int64_t round, char* slot) = 0;
  virtual void reduce_share(int64_t /*round*/) {}
  virtual void take_out(int64_t round) = 0;

  const SharedSlots& slots() const { return link_->slots; }
  // Slot of `rank` in this task's `round`.
  char* slot(int rank, int64_t round) const { return slots().slot(rank, global(round)); }

 private:
  uint64_t global(int64_t round) const { return first_round_ + static_cast<uint64_t>(round); }
  bool enter_rounds() {
    if (entered_ == num_rounds_ || !slots().may_enter(global(entered_))) return false;
    put_in(entered_, slot(slots().rank(), entered_));
    link_->slots.enter(global(entered_), signature_);
    ++entered_;
    return true;
  }

  bool reduce_rounds() {
    if (reduced_ == entered_ || !slots().all_entered(global(reduced_))) return false;
    check_signatures(reduced_);
    reduce_share(reduced_);
    link_->slots.mark_reduced(global(reduced_));
    ++reduced_;
    return true;
  }

  bool leave_rounds() {
    if (left_ == entered_) return false;
    if (phases_ == Phases::kThree) {
      if (left_ == reduced_ || !slots().all_reduced(global(left_))) return false;
    } else {
      if (!slots().all_entered(global(left_))) return false;
      check_signatures(left_);
      // Operations with and without the phase share the counters.
      link_->slots.mark_reduced(global(left_));
    }
    take_out(left_);
    link_->slots.leave(global(left_));
    ++left_;
    return true;
  }

  void check_signatures(int64_t round) const {
    for (int r = 0; r < slots().size(); ++r) {
      const uint64_t other = slots().signature(r, global(round));
      if (other == signature_) continue;
      throw Error(ErrorClass::kInternal,
                  str("rank ", link_->watched->world_rank(r), " is in ", signature_text(other), " while rank ",
                      link_->watched->world_rank(slots().rank()), " is in ", signature_text(signature_)));
    }
  }

  std::shared_ptr<SharedLink> link_;
  uint64_t signature_;
  int64_t num_rounds_;
  Phases phases_;
  bool begun_ = false;
  uint64_t first_round_ = 0;
  int64_t entered_ = 0;
  int64_t reduced_ = 0;
  int64_t left_ = 0;
};

// Up to here every rank reduces all elements itself: one meeting of the ranks instead of two.
constexpr int64_t kSmallBytes = int64_t{4} << 10;

int64_t rounds(int64_t count, int64_t per_round) {
  return (count + per_round - 1) / per_round;
}

char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

int64_t element_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.element_size());
}

int detail_of(at::ScalarType type, ReduceOp op) {
  return static_cast<int>(type) << 4 | static_cast<int>(op);
}

// Up to kSmallBytes: every rank reduces everything.
class SmallAllReduce final : public SharedTask {
 public:
  SmallAllReduce(std::shared_ptr<SharedLink> link, const at::Tensor& tensor, ReduceOp op)
      : SharedTask(std::move(link), Operation::kAllReduce, static_cast<int64_t>(tensor.nbytes()),
                   detail_of(tensor.scalar_type(), op), 1, Phases::kTwo),
        tensor_(tensor),
        op_(op) {}

 private:
  void put_in(int64_t /*round*/, char* slot) override { std::memcpy(slot, bytes_of(tensor_), tensor_.nbytes()); }

  void take_out(int64_t round) override {
    std::vector<const void*> sources;
    for (int r = 0; r < slots().size(); ++r)
      sources.push_back(slot(r, round));
    reduce_in_rank_order(tensor_.scalar_type(), op_, sources, bytes_of(tensor_), tensor_.numel());
  }

  at::Tensor tensor_;
  ReduceOp op_;
};

// A round takes a block of the tensor; each rank reduces its share of the block.
class SharedAllReduce final : public SharedTask {
 public:
  SharedAllReduce(std::shared_ptr<SharedLink> link, const at::Tensor& tensor, ReduceOp op)
      : SharedTask(link, Operation::kAllReduce, static_cast<int64_t>(tensor.nbytes()),
                   detail_of(tensor.scalar_type(), op),
                   rounds(tensor.numel(), link->slots.slot_bytes() / element_bytes(tensor)), Phases::kThree),
        tensor_(tensor),
        op_(op),
        size_(element_bytes(tensor)),
        per_round_(slots().slot_bytes() / size_) {}

 private:
  int64_t first_element(int64_t round) const { return round * per_round_; }
  // Elements of the round's block that `rank` reduces.
  Range share(int64_t round, int rank) const {
    const int64_t block = std::min(per_round_, tensor_.numel() - first_element(round));
    return Partition(block, slots().size()).part(rank);
  }
  char* in_tensor(int64_t round, Range share) const {
    return bytes_of(tensor_) + (first_element(round) + share.begin) * size_;
  }
  size_t bytes(Range share) const { return static_cast<size_t>(share.size() * size_); }

  void put_in(int64_t round, char* slot) override {
    for (int r = 0; r < slots().size(); ++r) {
      if (r == slots().rank()) continue;  // nobody else reads it
      const Range theirs = share(round, r);
      std::memcpy(slot + theirs.begin * size_, in_tensor(round, theirs), bytes(theirs));
    }
  }

  void reduce_share(int64_t round) override {
    const int own = slots().rank();
    const Range mine = share(round, own);
    std::vector<const void*> sources;
    for (int r = 0; r < slots().size(); ++r) {
      sources.push_back(r == own ? in_tensor(round, mine) : slot(r, round) + mine.begin * size_);
    }
    reduce_in_rank_order(tensor_.scalar_type(), op_, sources, in_tensor(round, mine), mine.size());
    std::memcpy(slot(own, round) + mine.begin * size_, in_tensor(round, mine), bytes(mine));
  }

  void take_out(int64_t round) override {
    for (int r = 0; r < slots().size(); ++r) {
      if (r == slots().rank()) continue;
      const Range theirs = share(round, r);
      std::memcpy(in_tensor(round, theirs), slot(r, round) + theirs.begin * size_, bytes(theirs));
    }
  }

  at::Tensor tensor_;
  ReduceOp op_;
  int64_t size_;
  int64_t per_round_;
};

// A round takes the same elements of every part, one after the other in the slot.
class SharedReduceScatter final : public SharedTask {
 public:
  SharedReduceScatter(std::shared_ptr<SharedLink> link, const at::Tensor& output, const at::Tensor& input, ReduceOp op)
      : SharedTask(link, Operation::kReduceScatter, static_cast<int64_t>(input.nbytes()),
                   detail_of(input.scalar_type(), op), rounds(output.numel(), elements_per_round(input, *link)),
                   Phases::kTwo),
        output_(output),
        input_(input),
        op_(op),
        size_(element_bytes(input)),
        per_round_(elements_per_round(input, *link)) {}

 private:
  static int64_t elements_per_round(const at::Tensor& input, const SharedLink& link) {
    return link.slots.slot_bytes() / (element_bytes(input) * link.slots.size());
  }

  Range block(int64_t round) const { return {round * per_round_, std::min(output_.numel(), (round + 1) * per_round_)}; }
  const char* input_at(int part, int64_t element) const {
    return bytes_of(input_) + (part * output_.numel() + element) * size_;
  }
  char* in_slot(char* slot, int part, int64_t elements) const { return slot + part * elements * size_; }

  void put_in(int64_t round, char* slot) override {
    const Range range = block(round);
    for (int part = 0; part < slots().size(); ++part) {
      if (part == slots().rank()) continue;  // nobody else reads it
      std::memcpy(in_slot(slot, part, range.size()), input_at(part, range.begin),
                  static_cast<size_t>(range.size() * size_));
    }
  }

  void take_out(int64_t round) override {
    const Range range = block(round);
    const int own = slots().rank();
    std::vector<const void*> sources;
    for (int r = 0; r < slots().size(); ++r) {
      sources.push_back(r == own ? input_at(own, range.begin) : in_slot(slot(r, round), own, range.size()));
    }
    reduce_in_rank_order(input_.scalar_type(), op_, sources, bytes_of(output_) + range.begin * size_, range.size());
  }

  at::Tensor output_;
  at::Tensor input_;
  ReduceOp op_;
  int64_t size_;
  int64_t per_round_;
};

// Bytes of this rank, or of the root, that the others copy out.
class SharedCopy final : public SharedTask {
 public:
  static constexpr int kEveryRank = -1;

  // Rank r's bytes end up at `output` + r * stride; `root` is the only source, or kEveryRank.
  SharedCopy(std::shared_ptr<SharedLink> link, Operation kind, const at::Tensor& output, const at::Tensor& input,
             int root)
      : SharedTask(link, kind, static_cast<int64_t>(output.nbytes()), root + 1,
                   rounds(static_cast<int64_t>(input.nbytes()), link->slots.slot_bytes()), Phases::kTwo),
        output_(output),
        input_(input),
        root_(root) {}

 private:
  Range block(int64_t round) const {
    const int64_t bytes = slots().slot_bytes();
    return {round * bytes, std::min(static_cast<int64_t>(input_.nbytes()), (round + 1) * bytes)};
  }
  bool is_source(int rank) const { return root_ == kEveryRank || root_ == rank; }

  void put_in(int64_t round, char* slot) override {
    if (!is_source(slots().rank())) return;
    const Range range = block(round);
    std::memcpy(slot, bytes_of(input_) + range.begin, static_cast<size_t>(range.size()));
  }

  void take_out(int64_t round) override {
    const Range range = block(round);
    const auto stride = root_ == kEveryRank ? static_cast<int64_t>(input_.nbytes()) : 0;
    for (int r = 0; r < slots().size(); ++r) {
      if (r == slots().rank() || !is_source(r)) continue;
      std::memcpy(bytes_of(output_) + r * stride + range.begin, slot(r, round), static_cast<size_t>(range.size()));
    }
  }

  at::Tensor output_;
  at::Tensor input_;
  int root_;
};

class SharedBarrier final : public SharedTask {
 public:
  explicit SharedBarrier(std::shared_ptr<SharedLink> link)
      : SharedTask(std::move(link), Operation::kBarrier, 0, 0, 1, Phases::kTwo) {}

 private:
  void put_in(int64_t /*round*/, char* /*slot*/) override {}
  void take_out(int64_t /*round*/) override {}
};

}  // namespace

std::unique_ptr<HostTask> shared_all_reduce(std::shared_ptr<SharedLink> link, const at::Tensor& tensor, ReduceOp op) {
  const int64_t small = std::min(kSmallBytes, link->slots.slot_bytes());
  if (static_cast<int64_t>(tensor.nbytes()) <= small) {
    return std::make_unique<SmallAllReduce>(std::move(link), tensor, op);
  }
  return std::make_unique<SharedAllReduce>(std::move(link), tensor, op);
}

std::unique_ptr<HostTask> shared_reduce_scatter(std::shared_ptr<SharedLink> link, const at::Tensor& output,
                                                const at::Tensor& input, ReduceOp op) {
  return std::make_unique<SharedReduceScatter>(std::move(link), output, input, op);
}

std::unique_ptr<HostTask> shared_all_gather(std::shared_ptr<SharedLink> link, const at::Tensor& output,
                                            const at::Tensor& input) {
  char* const own = bytes_of(output) + link->slots.rank() * static_cast<int64_t>(input.nbytes());
  if (own != bytes_of(input)) std::memcpy(own, bytes_of(input), input.nbytes());
  return std::make_unique<SharedCopy>(std::move(link), Operation::kAllGather, output, input, SharedCopy::kEveryRank);
}

std::unique_ptr<HostTask> shared_broadcast(std::shared_ptr<SharedLink> link, const at::Tensor& tensor, int root) {
  return std::make_unique<SharedCopy>(std::move(link), Operation::kBroadcast, tensor, tensor, root);
}

std::unique_ptr<HostTask> shared_barrier(std::shared_ptr<SharedLink> link) {
  return std::make_unique<SharedBarrier>(std::move(link));
}

}  // namespace vit_hybrid::comm
