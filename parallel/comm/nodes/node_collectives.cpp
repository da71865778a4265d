// The rounds of all_reduce, reduce_scatter, all_gather, broadcast and barrier, on a node and between nodes.
#include "parallel/comm/nodes/node_collectives.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "parallel/comm/nodes/node_task.h"

namespace vit_hybrid::comm {

namespace {

// Up to here every rank, or one of each node, reduces all elements itself: fewer meetings of the ranks, and with other
// nodes a number of messages in a row that grows with the logarithm of theirs.
constexpr int64_t kSmallBytes = int64_t{4} << 10;

int64_t rounds_of(int64_t count, int64_t per_round) {
  return (count + per_round - 1) / per_round;
}

char* data_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

int64_t element_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.element_size());
}

// Elements of a round of sums, of the tensor, or of each rank's part.
int64_t elements_of_round(bool scatters, int64_t size, int64_t slot_bytes, int num_ranks) {
  return slot_bytes / (scatters ? size * num_ranks : size);
}

// Of the leader's slot, the parts at `places` in a round of so many elements, of the tensor or of each rank's part.
Range bytes_at(const GroupNodes& nodes, Range places, bool scatters, int64_t elements, int64_t size) {
  if (scatters) {
    return {nodes.ranks_before(static_cast<int>(places.begin)) * elements * size,
            nodes.ranks_before(static_cast<int>(places.end)) * elements * size};
  }
  const Partition parts(elements, nodes.num_nodes());
  return {parts.part(places.begin).begin * size, parts.part(places.end - 1).end * size};
}

// Of what a node's peers send it of its `own` bytes in a step.
int64_t bytes_of_peers(const std::vector<int>& peers, int64_t own) {
  return (std::ssize(peers) - 1) * own;
}

bool is_small(const GroupNodes& nodes, int64_t bytes, int64_t slot_bytes) {
  return bytes <= std::min(kSmallBytes, slot_bytes) && nodes.adds_nodes_by_tree();
}

// Compared between the ranks of a node.
int detail_of(at::ScalarType type, ReduceOp op) {
  return static_cast<int>(type) << 4 | static_cast<int>(op);
}

// In it: of tensors that ranks share.
constexpr int kShared = 1 << 15;

// Up to kSmallBytes. On one node every rank reduces everything; else the leader does, and the leaders by the tree.
class SmallAllReduce final : public NodeTask {
 public:
  SmallAllReduce(std::shared_ptr<NodeLink> the_link, Operation kind, const at::Tensor& tensor, ReduceOp op)
      : NodeTask(std::move(the_link), kind, static_cast<int64_t>(tensor.nbytes()), detail_of(tensor.scalar_type(), op),
                 1, false),
        tensor_(tensor),
        op_(op),
        tree_(link().node(), num_nodes()) {}

 private:
  void put_in(int64_t round) override { std::memcpy(own_slot(round), data_of(tensor_), tensor_.nbytes()); }

  void reduce_slots(int64_t round, void* result) const {
    std::vector<const void*> sources;
    for (int r = 0; r < slots().size(); ++r)
      sources.push_back(slot(r, round));
    reduce_in_blocks(tensor_.scalar_type(), op_, sources, link().blocks_in_node(), result, tensor_.numel());
  }

  // Children give their sums; the sum goes up, comes down, and goes to the children.
  bool post(int64_t round, int step, MpiRequests& requests) override {
    const auto bytes = static_cast<int64_t>(tensor_.nbytes());
    const auto num_children = static_cast<int64_t>(tree_.children.size());
    char* const sums = staging(round, num_children * bytes);
    char* const own = leaders_slot(round);
    switch (step) {
      case 0:
        for (int64_t i = 0; i < num_children; ++i)
          receive(requests, round, 0, tree_.children[static_cast<size_t>(i)], sums + i * bytes, bytes);
        reduce_slots(round, own);
        return true;
      case 1:
        for (int64_t i = 0; i < num_children; ++i)
          reduce_in_rank_order(tensor_.scalar_type(), op_, {own, sums + i * bytes}, own, tensor_.numel());
        if (tree_.parent >= 0) send(requests, round, 0, tree_.parent, own, bytes);
        return true;
      case 2:
        if (tree_.parent >= 0) receive(requests, round, 1, tree_.parent, own, bytes);
        return true;
      case 3:
        for (auto child = tree_.children.rbegin(); child != tree_.children.rend(); ++child)
          send(requests, round, 1, *child, own, bytes);
        return true;
      default:
        return false;
    }
  }

  void take_out(int64_t round) override {
    if (leads_nodes()) {
      std::memcpy(data_of(tensor_), leaders_slot(round), tensor_.nbytes());
    } else {
      reduce_slots(round, data_of(tensor_));
    }
  }

  at::Tensor tensor_;
  ReduceOp op_;
  NodeTree tree_;
};

// Data of which each node has a part; in the leader's slot parts lie in the order of their places (NodeSteps).
class PartsTask : public NodeTask {
 protected:
  using NodeTask::NodeTask;

  // Of the leader's slot, those of the parts at `places`.
  virtual Range bytes_of_parts(int64_t round, Range places) const = 0;

  Range bytes_after(int64_t round, int node_step, int node) const {
    return bytes_of_parts(round, link().steps().places(node_step, node));
  }
  // The nodes that exchange with each other in a step: the own one, and then the others, each node beginning with
  // another one, so that none is everybody's first.
  std::vector<int> peers_from_own(int node_step) const {
    std::vector<int> peers = link().steps().peers(node_step, link().node());
    std::rotate(peers.begin(), std::find(peers.begin(), peers.end(), link().node()), peers.end());
    return peers;
  }

  // The `number`-th step of a gather, after which each peer has what the others had; false, and nothing, after the
  // last.
  bool post_gather(int64_t round, int step, int number, MpiRequests& requests) const {
    const int node_step = link().steps().count() - 1 - number;
    if (node_step < 0) return false;
    char* const data = leaders_slot(round);
    const std::vector<int> peers = peers_from_own(node_step);
    for (size_t i = 1; i < peers.size(); ++i) {
      const Range theirs = bytes_after(round, node_step, peers[i]);
      receive(requests, round, step, peers[i], data + theirs.begin, theirs.size());
    }
    const Range own = bytes_after(round, node_step, peers.front());
    for (size_t i = 1; i < peers.size(); ++i)
      send(requests, round, step, peers[i], data + own.begin, own.size());
    return true;
  }
};

// Sums of which each node owns a part: in a step between nodes every node sends its peers their parts of its own sums,
// and adds up what comes for its parts. Of a tensor that a node shares nothing is put into slots but these sums.
class Reduction : public PartsTask {
 protected:
  // Of so many elements of the tensor, or of each rank's part.
  Reduction(const std::shared_ptr<NodeLink>& the_link, Operation kind, const at::Tensor& tensor, ReduceOp op,
            int64_t elements, bool reduces)
      : PartsTask(the_link, kind, static_cast<int64_t>(tensor.nbytes()),
                  detail_of(tensor.scalar_type(), op) | (the_link->shared(tensor) != nullptr ? kShared : 0),
                  rounds_of(elements, elements_per_round(*the_link, kind, tensor)), reduces),
        type_(tensor.scalar_type()),
        op_(op),
        size_(element_bytes(tensor)),
        per_round_(elements_per_round(*the_link, kind, tensor)),
        shared_(the_link->shared(tensor)) {}

  // What rank `rank` of the node has of the own values at `own`: there, or else at `place` in its slot.
  const void* values_of(int rank, int64_t round, const char* own, int64_t place) const {
    return shared_ != nullptr ? shared_->at(rank, own) : slot(rank, round) + place;
  }

  void reduce_on_node(const std::vector<const void*>& sources, void* result, int64_t count) const {
    reduce_in_blocks(type_, op_, sources, link().blocks_in_node(), result, count);
  }

  // The leader's slot has the sums of the node, then of more and more nodes in fewer and fewer parts.
  bool post(int64_t round, int step, MpiRequests& requests) override {
    if (step > 0 && step <= link().steps().count()) add_up(round, step - 1);
    if (step >= link().steps().count()) return false;
    const std::vector<int> peers = peers_from_own(step);
    const int64_t own_bytes = bytes_after(round, step, peers.front()).size();
    char* const others = staging(round, bytes_of_peers(peers, own_bytes));
    for (size_t i = 1; i < peers.size(); ++i)
      receive(requests, round, step, peers[i], others + static_cast<int64_t>(i - 1) * own_bytes, own_bytes);
    for (size_t i = 1; i < peers.size(); ++i) {
      const Range theirs = bytes_after(round, step, peers[i]);
      send(requests, round, step, peers[i], leaders_slot(round) + theirs.begin, theirs.size());
    }
    return true;
  }

  at::ScalarType type_;
  ReduceOp op_;
  int64_t size_;       // of an element
  int64_t per_round_;  // elements
  std::shared_ptr<const SharedTensor> shared_;

 private:
  static int64_t elements_per_round(NodeLink& link, Operation kind, const at::Tensor& tensor) {
    return elements_of_round(kind == Operation::kReduceScatter, element_bytes(tensor), link.slots().slot_bytes(),
                             link.num_ranks());
  }

  // In the order of the nodes, not in that in which they were asked.
  void add_up(int64_t round, int step) const {
    const std::vector<int> peers = link().steps().peers(step, link().node());
    const Range own = bytes_after(round, step, link().node());
    char* const sums = leaders_slot(round) + own.begin;
    const auto num_others = static_cast<int64_t>(peers.size()) - 1;
    const char* const others = staging(round, bytes_of_peers(peers, own.size()));
    std::vector<const void*> sources = {sums};  // as peers_from_own()
    for (int64_t i = 0; i < num_others; ++i)
      sources.push_back(others + i * own.size());
    const auto number = std::find(peers.begin(), peers.end(), link().node()) - peers.begin();
    std::rotate(sources.begin(), sources.end() - number, sources.end());
    const SumBlocks each(peers.size(), 1);
    reduce_in_blocks(type_, op_, sources, link().steps().count() == 1 ? link().blocks_of_nodes() : each, sums,
                     own.size() / size_);
  }
};

// A round takes a block of the tensor; each rank of a node reduces its share of the block, each node its part.
class AllReduce final : public Reduction {
 public:
  AllReduce(const std::shared_ptr<NodeLink>& the_link, const at::Tensor& tensor, ReduceOp op)
      : Reduction(the_link, Operation::kAllReduce, tensor, op, tensor.numel(), true), tensor_(tensor) {}

 private:
  int64_t first_element(int64_t round) const { return round * per_round_; }
  int64_t block(int64_t round) const { return std::min(per_round_, tensor_.numel() - first_element(round)); }
  // Elements of the round's block that `rank` of the node reduces.
  Range share(int64_t round, int rank) const { return Partition(block(round), slots().size()).part(rank); }
  Range bytes_of_parts(int64_t round, Range places) const override {
    return bytes_at(link(), places, false, block(round), size_);
  }
  char* in_tensor(int64_t round, int64_t element) const {
    return data_of(tensor_) + (first_element(round) + element) * size_;
  }
  size_t bytes(Range share) const { return static_cast<size_t>(share.size() * size_); }

  void put_in(int64_t round) override {
    if (shared_ != nullptr) return;
    for (int r = 0; r < slots().size(); ++r) {
      if (r == slots().rank()) continue;  // nobody else reads it
      const Range theirs = share(round, r);
      slots().put(own_slot(round) + theirs.begin * size_, in_tensor(round, theirs.begin), theirs.size() * size_);
    }
  }

  void reduce_share(int64_t round) override {
    const int own = slots().rank();
    const Range mine = share(round, own);
    std::vector<const void*> sources;
    for (int r = 0; r < slots().size(); ++r) {
      sources.push_back(r == own ? in_tensor(round, mine.begin)
                                 : values_of(r, round, in_tensor(round, mine.begin), mine.begin * size_));
    }
    if (leads_nodes()) {
      reduce_on_node(sources, leaders_slot(round) + mine.begin * size_, mine.size());
    } else {
      reduce_on_node(sources, in_tensor(round, mine.begin), mine.size());
      slots().put(own_slot(round) + mine.begin * size_, in_tensor(round, mine.begin), mine.size() * size_);
    }
  }

  bool post(int64_t round, int step, MpiRequests& requests) override {
    return Reduction::post(round, step, requests) || post_gather(round, step, step - link().steps().count(), requests);
  }

  void take_out(int64_t round) override {
    if (leads_nodes()) {
      std::memcpy(in_tensor(round, 0), leaders_slot(round), static_cast<size_t>(block(round) * size_));
      return;
    }
    for (int r = 0; r < slots().size(); ++r) {
      if (r == slots().rank()) continue;
      const Range theirs = share(round, r);
      std::memcpy(in_tensor(round, theirs.begin), slot(r, round) + theirs.begin * size_, bytes(theirs));
    }
  }

  at::Tensor tensor_;
};

// A round takes the same elements of every part, one part after the other in the slot. On one node every rank reduces
// its own part from the slots; else the ranks share the sums of the node in the leader's slot.
class ReduceScatter final : public Reduction {
 public:
  ReduceScatter(const std::shared_ptr<NodeLink>& the_link, const at::Tensor& output, const at::Tensor& input,
                ReduceOp op)
      : Reduction(the_link, Operation::kReduceScatter, input, op, output.numel(), the_link->num_nodes() > 1),
        output_(output),
        input_(input) {}

 private:
  Range block(int64_t round) const { return {round * per_round_, std::min(output_.numel(), (round + 1) * per_round_)}; }
  const char* input_at(int part, int64_t element) const {
    return data_of(input_) + (part * output_.numel() + element) * size_;
  }
  int own_part() const { return link().group().rank(); }
  int64_t place_of(int part, int64_t round) const { return link().place_of_rank(part) * block(round).size() * size_; }
  Range bytes_of_parts(int64_t round, Range places) const override {
    return bytes_at(link(), places, true, block(round).size(), size_);
  }

  void put_in(int64_t round) override {
    if (shared_ != nullptr) return;
    const Range range = block(round);
    for (int part = 0; part < link().group().size(); ++part) {
      if (part == own_part() && !leads_nodes()) continue;  // nobody else reads it
      slots().put(own_slot(round) + place_of(part, round), input_at(part, range.begin), range.size() * size_);
    }
  }

  void reduce_share(int64_t round) override {
    if (!leads_nodes() || slots().size() == 1) return;
    const int64_t elements = block(round).size();  // of each part
    const Range share = Partition(elements * link().group().size(), slots().size()).part(slots().rank());
    for (int part = 0; part < link().group().size(); ++part) {
      const int64_t first = link().place_of_rank(part) * elements;
      const Range mine{std::max(share.begin, first), std::min(share.end, first + elements)};
      if (mine.begin >= mine.end) continue;
      const char* const own = input_at(part, block(round).begin + mine.begin - first);
      std::vector<const void*> sources;
      for (int r = 0; r < slots().size(); ++r)
        sources.push_back(values_of(r, round, own, mine.begin * size_));
      reduce_on_node(sources, leaders_slot(round) + mine.begin * size_, mine.size());
    }
  }

  void take_out(int64_t round) override {
    const Range range = block(round);
    const int64_t place = place_of(own_part(), round);
    char* const result = data_of(output_) + range.begin * size_;
    if (leads_nodes()) {
      std::memcpy(result, leaders_slot(round) + place, static_cast<size_t>(range.size() * size_));
      return;
    }
    std::vector<const void*> sources;
    for (int r = 0; r < slots().size(); ++r) {
      sources.push_back(r == own_part() ? input_at(r, range.begin) : slot(r, round) + place);
    }
    reduce_on_node(sources, result, range.size());
  }

  at::Tensor output_;
  at::Tensor input_;
};

// A round takes the same bytes of every rank. On one node they stand in the ranks' slots; else one part after the other
// in the leader's.
class AllGather final : public PartsTask {
 public:
  AllGather(const std::shared_ptr<NodeLink>& the_link, const at::Tensor& output, const at::Tensor& input)
      : PartsTask(the_link, Operation::kAllGather, static_cast<int64_t>(output.nbytes()), 0,
                  rounds_of(static_cast<int64_t>(input.nbytes()), bytes_per_round(*the_link)), false),
        output_(output),
        input_(input) {}

 private:
  static int64_t bytes_per_round(NodeLink& link) {
    return link.slots().slot_bytes() / (link.num_nodes() > 1 ? link.group().size() : 1);
  }

  Range block(int64_t round) const {
    const int64_t bytes = bytes_per_round(link());
    return {round * bytes, std::min(static_cast<int64_t>(input_.nbytes()), (round + 1) * bytes)};
  }
  // Where the bytes of `rank` of the group are in this round.
  char* place(int64_t round, int rank) const {
    return leads_nodes() ? leaders_slot(round) + link().place_of_rank(rank) * block(round).size() : slot(rank, round);
  }

  void put_in(int64_t round) override {
    const Range range = block(round);
    slots().put(place(round, link().group().rank()), data_of(input_) + range.begin, range.size());
  }

  Range bytes_of_parts(int64_t round, Range places) const override {
    return bytes_at(link(), places, true, block(round).size(), 1);
  }
  bool post(int64_t round, int step, MpiRequests& requests) override {
    return post_gather(round, step, step, requests);
  }

  void take_out(int64_t round) override {
    const Range range = block(round);
    const auto stride = static_cast<int64_t>(input_.nbytes());
    for (int r = 0; r < link().group().size(); ++r) {
      if (r == link().group().rank()) continue;
      std::memcpy(data_of(output_) + r * stride + range.begin, place(round, r), static_cast<size_t>(range.size()));
    }
  }

  at::Tensor output_;
  at::Tensor input_;
};

// The root's slot, and those of the leaders of other nodes, which get it by the tree of nodes whose first is the
// root's.
class Broadcast final : public NodeTask {
 public:
  Broadcast(const std::shared_ptr<NodeLink>& the_link, const at::Tensor& tensor, int root)
      : NodeTask(the_link, Operation::kBroadcast, static_cast<int64_t>(tensor.nbytes()), root + 1,
                 rounds_of(static_cast<int64_t>(tensor.nbytes()), the_link->slots().slot_bytes()), false),
        tensor_(tensor),
        root_(root),
        first_node_(link().node_of(root)),
        tree_((link().node() - first_node_ + num_nodes()) % num_nodes(), num_nodes()) {}

 private:
  Range block(int64_t round) const {
    const int64_t bytes = slots().slot_bytes();
    return {round * bytes, std::min(static_cast<int64_t>(tensor_.nbytes()), (round + 1) * bytes)};
  }
  bool is_root() const { return link().group().rank() == root_; }
  char* source(int64_t round) const {
    return link().node() == first_node_ ? slot(root_ - static_cast<int>(own_ranks().begin), round)
                                        : leaders_slot(round);
  }
  int node_of_tree(int node) const { return (node + first_node_) % num_nodes(); }

  void put_in(int64_t round) override {
    if (!is_root()) return;
    const Range range = block(round);
    slots().put(source(round), data_of(tensor_) + range.begin, range.size());
  }

  bool post(int64_t round, int step, MpiRequests& requests) override {
    const int64_t bytes = block(round).size();
    if (step == 0 && tree_.parent >= 0) {
      receive(requests, round, 0, node_of_tree(tree_.parent), source(round), bytes);
    } else if (step == 1) {
      for (auto child = tree_.children.rbegin(); child != tree_.children.rend(); ++child)
        send(requests, round, 0, node_of_tree(*child), source(round), bytes);
    }
    return step < 2;
  }

  void take_out(int64_t round) override {
    if (is_root()) return;
    const Range range = block(round);
    std::memcpy(data_of(tensor_) + range.begin, source(round), static_cast<size_t>(range.size()));
  }

  at::Tensor tensor_;
  int root_;
  int first_node_;
  NodeTree tree_;
};

// Of a tensor that all ranks of the group share, which are on one node: when they have come, each does its part of the
// work where the tensors lie; the task is complete when all have.
class SharedTask final : public NodeTask {
 public:
  SharedTask(std::shared_ptr<NodeLink> the_link, Operation kind, int64_t bytes, int detail, std::function<void()> work)
      : NodeTask(std::move(the_link), kind, bytes, kShared | detail, 1, true), work_(std::move(work)) {}

 private:
  void put_in(int64_t /*round*/) override {}
  void reduce_share(int64_t /*round*/) override { work_(); }
  void take_out(int64_t /*round*/) override {}

  std::function<void()> work_;
};

// What the one node of a group shares of the tensor; null: nothing, or there are several.
std::shared_ptr<const SharedTensor> shared_by_all(const NodeLink& link, const at::Tensor& tensor) {
  return link.num_nodes() == 1 ? link.shared(tensor) : nullptr;
}

// The values of all ranks at `own` of this one, each in the order of ranks.
std::vector<char*> values_of_all(const SharedTensor& shared, const char* own, int num_ranks) {
  std::vector<char*> values;
  for (int rank = 0; rank < num_ranks; ++rank)
    values.push_back(shared.at(rank, own));
  return values;
}

}  // namespace

std::unique_ptr<HostTask> node_all_reduce(std::shared_ptr<NodeLink> link, const at::Tensor& tensor, ReduceOp op) {
  if (is_small(*link, static_cast<int64_t>(tensor.nbytes()), link->slots().slot_bytes())) {
    return std::make_unique<SmallAllReduce>(std::move(link), Operation::kAllReduce, tensor, op);
  }
  if (auto shared = shared_by_all(*link, tensor)) {
    // The sums of this rank's share go into all ranks' tensors, piece by piece, which stay in the first cache.
    const auto work = [shared = std::move(shared), link = link.get(), tensor, op] {
      constexpr int64_t kPiece = 2048;  // elements
      const int own = link->group().rank(), ranks = link->group().size();
      const Range share = Partition(tensor.numel(), ranks).part(own);
      for (Range piece{share.begin, 0}; piece.begin < share.end; piece.begin = piece.end) {
        piece.end = std::min(piece.begin + kPiece, share.end);
        char* const sums = data_of(tensor) + piece.begin * element_bytes(tensor);
        const std::vector<char*> values = values_of_all(*shared, sums, ranks);
        reduce_in_blocks(tensor.scalar_type(), op, {values.begin(), values.end()}, link->blocks_in_node(), sums,
                         piece.size());
        for (char* const others : values) {
          if (others != sums) std::memcpy(others, sums, static_cast<size_t>(piece.size() * element_bytes(tensor)));
        }
      }
    };
    return std::make_unique<SharedTask>(link, Operation::kAllReduce, static_cast<int64_t>(tensor.nbytes()),
                                        detail_of(tensor.scalar_type(), op), work);
  }
  return std::make_unique<AllReduce>(std::move(link), tensor, op);
}

std::unique_ptr<HostTask> node_reduce_scatter(std::shared_ptr<NodeLink> link, const at::Tensor& output,
                                              const at::Tensor& input, ReduceOp op) {
  if (auto shared = shared_by_all(*link, input)) {
    const auto work = [shared = std::move(shared), link = link.get(), output, input, op] {
      const char* const own = data_of(input) + link->group().rank() * static_cast<int64_t>(output.nbytes());
      const std::vector<char*> values = values_of_all(*shared, own, link->group().size());
      reduce_in_blocks(input.scalar_type(), op, {values.begin(), values.end()}, link->blocks_in_node(), data_of(output),
                       output.numel());
    };
    return std::make_unique<SharedTask>(link, Operation::kReduceScatter, static_cast<int64_t>(input.nbytes()),
                                        detail_of(input.scalar_type(), op), work);
  }
  return std::make_unique<ReduceScatter>(std::move(link), output, input, op);
}

std::unique_ptr<HostTask> node_all_gather(std::shared_ptr<NodeLink> link, const at::Tensor& output,
                                          const at::Tensor& input) {
  char* const own = data_of(output) + link->group().rank() * static_cast<int64_t>(input.nbytes());
  if (own != data_of(input)) std::memcpy(own, data_of(input), input.nbytes());
  if (auto shared = shared_by_all(*link, output)) {
    const auto work = [shared = std::move(shared), own_rank = link->group().rank(), output, bytes = input.nbytes()] {
      for (int rank = 0; rank < static_cast<int>(output.nbytes() / bytes); ++rank) {
        char* const part = data_of(output) + rank * static_cast<int64_t>(bytes);
        if (rank != own_rank) std::memcpy(part, shared->at(rank, part), bytes);
      }
    };
    return std::make_unique<SharedTask>(std::move(link), Operation::kAllGather, static_cast<int64_t>(output.nbytes()),
                                        0, work);
  }
  return std::make_unique<AllGather>(std::move(link), output, input);
}

std::unique_ptr<HostTask> node_broadcast(std::shared_ptr<NodeLink> link, const at::Tensor& tensor, int root) {
  return std::make_unique<Broadcast>(std::move(link), tensor, root);
}

std::unique_ptr<HostTask> node_barrier(std::shared_ptr<NodeLink> link) {
  return std::make_unique<SmallAllReduce>(std::move(link), Operation::kBarrier, at::zeros({1}, at::kByte),
                                          ReduceOp::kMax);
}

int64_t staging_bytes(const GroupNodes& nodes, int node, const LongestSum& sum, int64_t slot_bytes) {
  const int64_t bytes = sum.elements * sum.element_bytes;
  if (!sum.scatters && is_small(nodes, bytes, slot_bytes)) {
    return std::ssize(NodeTree(node, nodes.num_nodes()).children) * bytes;
  }
  const int64_t elements = std::min(sum.scatters ? sum.elements / nodes.num_ranks() : sum.elements,
                                    elements_of_round(sum.scatters, sum.element_bytes, slot_bytes, nodes.num_ranks()));
  int64_t most = 0;
  for (int step = 0; step < nodes.steps().count(); ++step) {
    const Range own = bytes_at(nodes, nodes.steps().places(step, node), sum.scatters, elements, sum.element_bytes);
    most = std::max(most, bytes_of_peers(nodes.steps().peers(step, node), own.size()));
  }
  return most;
}

}  // namespace vit_hybrid::comm
