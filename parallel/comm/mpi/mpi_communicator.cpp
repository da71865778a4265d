// Messages posted in pieces and tested with a check of what came, and all_reduce, reduce_scatter, all_gather and
// broadcast made of them.
#include "parallel/comm/mpi/mpi_communicator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "parallel/comm/host_task.h"
#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/mpi/rank_order.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/shared_memory/shared_collectives.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/partition.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

constexpr int kNoPeer = -1;
constexpr int64_t kNotReceived = -1;

// Calls post(offset, bytes as int) for each piece. The pieces of a message are sent and received in
// the same order, and MPI keeps messages of one pair and tag in order.
template <class Post>
void in_pieces(int64_t bytes, int64_t largest, Post post) {
  for (int64_t offset = 0; offset < bytes; offset += largest) {
    post(offset, static_cast<int>(std::min(largest, bytes - offset)));
  }
}

// A set of non-blocking calls that are completed together. Not for use after a failed test().
class MpiRequests {
 public:
  MpiRequests(MPI_Comm comm, int64_t max_message_bytes) : comm_(comm), max_message_bytes_(max_message_bytes) {}

  void send(const void* data, int64_t bytes, int peer, int tag) {
    in_pieces(bytes, max_message_bytes_, [&](int64_t offset, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Isend(static_cast<const char*>(data) + offset, count, MPI_BYTE, peer, tag, comm_, &request),
                "MPI_Isend");
      add(request, peer, kNotReceived);
    });
  }

  void receive(void* data, int64_t bytes, int peer, int tag) {
    in_pieces(bytes, max_message_bytes_, [&](int64_t offset, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Irecv(static_cast<char*>(data) + offset, count, MPI_BYTE, peer, tag, comm_, &request), "MPI_Irecv");
      add(request, peer, count);
    });
  }

  void broadcast(void* data, int64_t bytes, int root) {
    in_pieces(bytes, max_message_bytes_, [&](int64_t offset, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Ibcast(static_cast<char*>(data) + offset, count, MPI_BYTE, root, comm_, &request), "MPI_Ibcast");
      add(request, kNoPeer, kNotReceived);
    });
  }

  void barrier() {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
    add(request, kNoPeer, kNotReceived);
  }

  // True once all are complete (and for an empty set). Throws Error(kIo) if one failed, and
  // Error(kInternal) if a message was shorter or longer than its receive.
  bool test() {
    if (requests_.empty()) return true;
    statuses_.resize(requests_.size());
    int complete = 0;
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete, statuses_.data());
    if (code == MPI_ERR_IN_STATUS) fail();
    check_mpi(code, "MPI_Testall");
    if (complete == 0) return false;
    for (size_t i = 0; i < requests_.size(); ++i)
      check_received(i);
    requests_.clear();
    peers_.clear();
    received_.clear();
    return true;
  }

  // Ranks of the messages that are not complete.
  std::vector<int> pending_peers() const {
    std::vector<int> peers;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int complete = 0;
      MPI_Status status;
      if (MPI_Request_get_status(requests_[i], &complete, &status) != MPI_SUCCESS) continue;
      if (complete == 0 && peers_[i] != kNoPeer) peers.push_back(peers_[i]);
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  }

 private:
  void add(MPI_Request request, int peer, int64_t bytes) {
    requests_.push_back(request);
    peers_.push_back(peer);
    received_.push_back(bytes);
  }

  void check_received(size_t index) const {
    if (received_[index] == kNotReceived) return;
    int count = 0;
    check_mpi(MPI_Get_count(&statuses_[index], MPI_BYTE, &count), "MPI_Get_count");
    if (count == received_[index]) return;
    throw Error(ErrorClass::kInternal, str("rank ", world_ranks(comm_)[static_cast<size_t>(peers_[index])], " sent ",
                                           count, " bytes where ", received_[index], " are received"));
  }

  void fail() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      const int code = statuses_[i].MPI_ERROR;
      if (code == MPI_SUCCESS || code == MPI_ERR_PENDING) continue;
      int error_class = MPI_SUCCESS;
      MPI_Error_class(code, &error_class);
      if (error_class == MPI_ERR_TRUNCATE) {
        throw Error(ErrorClass::kInternal, str("rank ", world_ranks(comm_)[static_cast<size_t>(peers_[i])],
                                               " sent more than the ", received_[i], " bytes that are received"));
      }
      check_mpi(code, peers_[i] == kNoPeer           ? "a collective operation"
                      : received_[i] == kNotReceived ? "MPI_Isend"
                                                     : "MPI_Irecv");
    }
  }

  MPI_Comm comm_;
  int64_t max_message_bytes_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> peers_;         // -1 for collectives
  std::vector<int64_t> received_;  // bytes expected; -1 for what is not a receive
};

// Below this, the latency of the all-gather costs more than the bytes that it saves.
constexpr int64_t kSmallBytesReceived = int64_t{64} << 10;
constexpr int kNumTags = 16384;  // MPI promises 32767; tag 0 is that of exchange()
constexpr int64_t kFewestPieceElements = 64;

// What the tasks of one MPI communicator share. Tasks hold it too, so that one that was abandoned
// keeps the memory into which messages still arrive.
struct MpiLink {
  MpiLink(MpiGroup the_group, const TransportOptions& the_options)
      : group(std::move(the_group)), options(the_options) {}

  MpiRequests requests() const { return MpiRequests(mpi_comm(group), options.max_message_bytes); }

  // Tag of the next collective that sends messages; it differs from those of its predecessors.
  int next_tag() {
    last_tag_ = last_tag_ % kNumTags + 1;
    return last_tag_;
  }

  MpiGroup group;
  TransportOptions options;
  TaskQueue reductions;  // take their turns with the staging memory
  at::Tensor staging;

 private:
  int last_tag_ = 0;
};

// Messages, or an MPI collective, that were posted together: exchange, all_gather, broadcast,
// barrier.
class MessagesTask final : public HostTask {
 public:
  MessagesTask(std::shared_ptr<MpiLink> link, std::vector<at::Tensor> tensors)
      : link_(std::move(link)), tensors_(std::move(tensors)), requests_(link_->requests()) {}

  MpiRequests& requests() { return requests_; }
  bool advance() override { return requests_.test(); }
  std::vector<int> awaits() const override { return link_->group.watched()->to_world(requests_.pending_peers()); }

 private:
  std::shared_ptr<MpiLink> link_;
  std::vector<at::Tensor> tensors_;
  MpiRequests requests_;
};

int64_t piece_elements(const MpiLink& link, int64_t element_bytes) {
  const int64_t others = link.group.size() - 1;
  return std::max(kFewestPieceElements, link.options.staging_bytes / (2 * others * element_bytes));
}

// Posts the all-gather in which rank r has part r of the elements at `data`, in place.
void post_all_gather(const MpiLink& link, MpiRequests& requests, const Partition& parts, void* data,
                     int64_t element_bytes, int tag) {
  const int rank = link.group.rank();
  const int size = link.group.size();
  const auto at = [&](int64_t element) { return static_cast<char*>(data) + element * element_bytes; };
  // Each rank begins with another peer, so that no rank is everybody's first.
  for (int distance = 1; distance < size; ++distance) {
    const int from = (rank - distance + size) % size;
    const Range part = parts.part(from);
    requests.receive(at(part.begin), part.size() * element_bytes, from, tag);
  }
  const Range own = parts.part(rank);
  for (int distance = 1; distance < size; ++distance) {
    requests.send(at(own.begin), own.size() * element_bytes, (rank + distance) % size, tag);
  }
}

// reduce_scatter, and all_reduce as reduce-scatter and all-gather. Every rank gets the others' values
// of the elements that it reduces, and adds them in rank order; nobody else computes these elements,
// so all ranks have the same bits. Where the tensor is small, every rank reduces all of it (from the
// same values in the same order), which saves the all-gather.
//
// The elements go in pieces through two halves of the staging memory: while one is reduced, the
// next one travels.
class ReductionTask final : public HostTask {
 public:
  enum class Result { kOwnPart, kWhole };

  // `output` is the own part (kOwnPart), or `input` itself (kWhole).
  ReductionTask(std::shared_ptr<MpiLink> link, at::Tensor output, at::Tensor input, ReduceOp op, Result result)
      : link_(std::move(link)),
        output_(std::move(output)),
        input_(std::move(input)),
        op_(op),
        result_(result),
        parts_(input_.numel(), link_->group.size()),
        element_bytes_(static_cast<int64_t>(input_.element_size())),
        piece_elements_(piece_elements(*link_, element_bytes_)),
        tag_(link_->next_tag()),
        requests_{link_->requests(), link_->requests()} {
    const int64_t received = input_.numel() * element_bytes_ * (link_->group.size() - 1);
    all_reduce_all_ = result_ == Result::kWhole && received <= kSmallBytesReceived && input_.numel() <= piece_elements_;
    const int64_t largest = all_reduce_all_ ? input_.numel() : parts_.largest();
    num_pieces_ = (largest + piece_elements_ - 1) / piece_elements_;
    link_->reductions.enter(*this);
  }

  bool advance() override {
    if (!begun_) {
      if (!link_->reductions.is_first(*this)) return false;
      take_turn();
    }
    if (!gathering_ && !advance_reduction()) return false;
    if (result_ == Result::kOwnPart || all_reduce_all_ || advance_gather()) {
      link_->reductions.leave(*this);
      return true;
    }
    return false;
  }

  std::vector<int> awaits() const override {
    std::vector<int> ranks = requests_[0].pending_peers();
    const std::vector<int> more = requests_[1].pending_peers();
    ranks.insert(ranks.end(), more.begin(), more.end());
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return link_->group.watched()->to_world(ranks);
  }

 private:
  bool advance_reduction() {
    for (;;) {
      while (posted_ < num_pieces_ && posted_ < reduced_ + 2)
        post(posted_++);
      if (reduced_ == num_pieces_) return true;
      if (!requests_[static_cast<size_t>(reduced_ % 2)].test()) return false;
      reduce(reduced_++);
    }
  }

  bool advance_gather() {
    MpiRequests& requests = requests_[0];
    if (!gathering_) {
      gathering_ = true;
      post_all_gather(*link_, requests, parts_, input_.data_ptr(), element_bytes_, tag_);
    }
    return requests.test();
  }

  void take_turn() {
    const int64_t bytes = 2 * (link_->group.size() - 1) * piece_elements_ * element_bytes_;
    if (!link_->staging.defined() || link_->staging.numel() < bytes) {
      const MemoryScope scope(MemoryClass::kCommunication);
      link_->staging = at::empty({bytes}, at::kByte);
    }
    begun_ = true;
  }

  void post(int64_t piece) {
    MpiRequests& requests = requests_[static_cast<size_t>(piece % 2)];
    const int rank = link_->group.rank();
    const int size = link_->group.size();
    const int64_t own_bytes = piece_of(rank, piece).size() * element_bytes_;
    for (int distance = 1; distance < size; ++distance) {
      const int from = (rank - distance + size) % size;
      requests.receive(staged(piece, from), own_bytes, from, tag_);
    }
    for (int distance = 1; distance < size; ++distance) {
      const int to = (rank + distance) % size;
      const Range range = piece_of(to, piece);
      requests.send(input_at(range.begin), range.size() * element_bytes_, to, tag_);
    }
  }

  void reduce(int64_t piece) {
    const int rank = link_->group.rank();
    const Range range = piece_of(rank, piece);
    std::vector<const void*> sources;
    for (int r = 0; r < link_->group.size(); ++r) {
      sources.push_back(r == rank ? input_at(range.begin) : staged(piece, r));
    }
    char* result = input_at(range.begin);
    if (result_ == Result::kOwnPart) {
      const int64_t offset = range.begin - parts_.part(rank).begin;
      result = static_cast<char*>(output_.data_ptr()) + offset * element_bytes_;
    }
    reduce_in_rank_order(input_.scalar_type(), op_, sources, result, range.size());
  }

  // Elements of `input_` that `rank` reduces in `piece`.
  Range piece_of(int rank, int64_t piece) const {
    const Range part = all_reduce_all_ ? Range{0, input_.numel()} : parts_.part(rank);
    const int64_t begin = std::min(part.end, part.begin + piece * piece_elements_);
    return {begin, std::min(part.end, begin + piece_elements_)};
  }

  char* staged(int64_t piece, int rank) const {
    const int own = link_->group.rank();
    const int64_t slot = (piece % 2) * (link_->group.size() - 1) + (rank < own ? rank : rank - 1);
    return static_cast<char*>(link_->staging.data_ptr()) + slot * piece_elements_ * element_bytes_;
  }

  char* input_at(int64_t element) const { return static_cast<char*>(input_.data_ptr()) + element * element_bytes_; }

  std::shared_ptr<MpiLink> link_;
  at::Tensor output_;
  at::Tensor input_;
  ReduceOp op_;
  Result result_;
  Partition parts_;
  int64_t element_bytes_;
  int64_t piece_elements_;
  bool all_reduce_all_;  // every rank reduces everything
  int tag_;

  bool begun_ = false;
  bool gathering_ = false;
  int64_t num_pieces_ = 0;
  int64_t posted_ = 0;
  int64_t reduced_ = 0;
  std::array<MpiRequests, 2> requests_;
};

class MpiCommunicator final : public CommunicatorBase {
 public:
  MpiCommunicator(std::string axis, MpiGroup group, const TransportOptions& options)
      : CommunicatorBase(std::move(axis), group.rank(), group.size(), at::kCPU, group.watched()),
        link_(std::make_shared<MpiLink>(std::move(group), options)) {
    if (use_shared_memory()) {
      shared_ = std::make_shared<SharedLink>(link_->group, options.slot_bytes);
    }
  }

  std::string back_end() const override { return shared_ != nullptr ? "mpi, shared memory" : "mpi, messages"; }

 private:
  bool use_shared_memory() const {
    const TransportOptions& options = link_->options;
    if (options.host_path == HostPath::kMessages) return false;
    const bool one_node = link_->group.is_on_one_node();
    if (options.host_path == HostPath::kSharedMemory) {
      VH_ASSERT(one_node, str("axis '", axis(), "' spans nodes, which share no memory"));
      return true;
    }
    // A full /dev/shm kills a process with SIGBUS at its first write. Half of what is free may be
    // taken, as other groups of the node ask at the same moment.
    const int64_t needed = size() * SharedSlots::bytes_per_rank(options.slot_bytes);
    return one_node && link_->group.min(free_shared_memory()) / 2 >= needed;
  }

  std::unique_ptr<MessagesTask> messages(std::vector<at::Tensor> tensors) const {
    return std::make_unique<MessagesTask>(link_, std::move(tensors));
  }

  Started start_all_reduce(const at::Tensor& tensor, ReduceOp op, const Work::State* first) override {
    auto task = shared_ != nullptr
                    ? shared_all_reduce(shared_, tensor, op)
                    : std::make_unique<ReductionTask>(link_, tensor, tensor, op, ReductionTask::Result::kWhole);
    task->follow(first);
    return task;
  }

  Started start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    if (shared_ != nullptr) return shared_reduce_scatter(shared_, output, input, op);
    return std::make_unique<ReductionTask>(link_, output, input, op, ReductionTask::Result::kOwnPart);
  }

  Started start_all_gather(const at::Tensor& output, const at::Tensor& input) override {
    if (shared_ != nullptr) return shared_all_gather(shared_, output, input);
    const Partition parts(output.numel(), size());
    const auto element_bytes = static_cast<int64_t>(output.element_size());
    char* const own = static_cast<char*>(output.data_ptr()) + parts.part(rank()).begin * element_bytes;
    if (own != input.data_ptr()) std::memcpy(own, input.data_ptr(), input.nbytes());
    auto task = messages({output});
    post_all_gather(*link_, task->requests(), parts, output.data_ptr(), element_bytes, link_->next_tag());
    return task;
  }

  Started start_broadcast(const at::Tensor& tensor, int root) override {
    if (shared_ != nullptr) return shared_broadcast(shared_, tensor, root);
    auto task = messages({tensor});
    task->requests().broadcast(tensor.data_ptr(), static_cast<int64_t>(tensor.nbytes()), root);
    return task;
  }

  Started start_exchange(std::vector<Transfer> transfers) override {
    constexpr int kTag = 0;
    std::vector<at::Tensor> tensors;
    for (const Transfer& transfer : transfers)
      tensors.push_back(transfer.tensor);
    auto task = messages(std::move(tensors));
    for (const auto& [direction, tensor, peer] : transfers) {
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      if (direction == Transfer::Direction::kSend) {
        task->requests().send(tensor.data_ptr(), bytes, peer, kTag);
      } else {
        task->requests().receive(tensor.data_ptr(), bytes, peer, kTag);
      }
    }
    return task;
  }

  Started start_barrier() override {
    if (shared_ != nullptr) return shared_barrier(shared_);
    auto task = messages({});
    task->requests().barrier();
    return task;
  }

  std::shared_ptr<MpiLink> link_;
  std::shared_ptr<SharedLink> shared_;  // null: by messages
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const std::string& axis, MpiGroup group,
                                                    const TransportOptions& options) {
  return std::make_unique<MpiCommunicator>(axis, std::move(group), options);
}

}  // namespace vit_hybrid::comm
