// The collectives through shared memory: what each operation does in a round.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "parallel/comm/rank_order.h"
#include "parallel/comm/shared_tasks.h"
#include "src/base/partition.h"

namespace vit_hybrid::comm {

namespace {

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

class SharedAllReduce final : public SharedTask {
 public:
  SharedAllReduce(std::shared_ptr<SharedLink> link, const at::Tensor& tensor, ReduceOp op)
      : SharedTask(link, Operation::kAllReduce, static_cast<int64_t>(tensor.nbytes()),
                   detail_of(tensor.scalar_type(), op),
                   rounds(tensor.numel(), link->slots.slot_bytes() / element_bytes(tensor)),
                   is_small(tensor, *link) ? Phases::kTwo : Phases::kThree),
        tensor_(tensor),
        op_(op),
        small_(is_small(tensor, *link)),
        size_(element_bytes(tensor)),
        per_round_(slots().slot_bytes() / size_) {}

 private:
  static bool is_small(const at::Tensor& tensor, const SharedLink& link) {
    return static_cast<int64_t>(tensor.nbytes()) <= std::min(kSmallBytes, link.slots.slot_bytes());
  }

  Range block(int64_t round) const { return {round * per_round_, std::min(tensor_.numel(), (round + 1) * per_round_)}; }
  char* at(int64_t element) const { return bytes_of(tensor_) + element * size_; }

  // Reduces elements [begin, end) of the slots of `round`.
  void reduce(int64_t round, Range range, char* result) const {
    std::vector<const void*> sources;
    for (int r = 0; r < slots().size(); ++r)
      sources.push_back(slot(r, round) + range.begin * size_);
    reduce_in_rank_order(tensor_.scalar_type(), op_, sources, result, range.size());
  }

  void put_in(int64_t round, char* slot) override {
    const Range range = block(round);
    std::memcpy(slot, at(range.begin), static_cast<size_t>(range.size() * size_));
  }

  // Only this rank reads these elements of any slot, so the sums may replace its own ones.
  void reduce_share(int64_t round) override {
    const Range share = Partition(block(round).size(), slots().size()).part(slots().rank());
    reduce(round, share, slot(slots().rank(), round) + share.begin * size_);
  }

  void take_out(int64_t round) override {
    const Range range = block(round);
    if (small_) return reduce(round, {0, range.size()}, at(range.begin));
    const Partition shares(range.size(), slots().size());
    for (int r = 0; r < slots().size(); ++r) {
      const Range share = shares.part(r);
      std::memcpy(at(range.begin + share.begin), slot(r, round) + share.begin * size_,
                  static_cast<size_t>(share.size() * size_));
    }
  }

  at::Tensor tensor_;
  ReduceOp op_;
  bool small_;
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
