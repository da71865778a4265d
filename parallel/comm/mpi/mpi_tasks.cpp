// The tasks of the MPI back end that send messages.
#include "parallel/comm/mpi/mpi_tasks.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/mpi/rank_order.h"
#include "parallel/comm/node_board.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

// Below this, the latency of the all-gather costs more than the bytes that it saves.
constexpr int64_t kSmallBytesReceived = int64_t{64} << 10;
constexpr int kNumTags = 16384;  // MPI promises 32767; tag 0 is that of exchange()
constexpr int64_t kFewestPieceElements = 64;

int64_t piece_elements(const MpiLink& link, int64_t element_bytes) {
  const int64_t others = link.group.size() - 1;
  return std::max(kFewestPieceElements, link.options.staging_bytes / (2 * others * element_bytes));
}

}  // namespace

MpiLink::MpiLink(MpiGroup the_group, const TransportOptions& the_options)
    : group(std::move(the_group)), options(the_options) {}

MpiRequests MpiLink::requests() const {
  return MpiRequests(mpi_comm(group), options.max_message_bytes);
}

int MpiLink::next_tag() {
  last_tag_ = last_tag_ % kNumTags + 1;
  return last_tag_;
}

MessagesTask::MessagesTask(std::shared_ptr<MpiLink> link, std::vector<at::Tensor> tensors)
    : link_(std::move(link)), tensors_(std::move(tensors)), requests_(link_->requests()) {}

std::vector<int> MessagesTask::awaits() const {
  return link_->group.watched()->to_world(requests_.pending_peers());
}

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

ReductionTask::ReductionTask(std::shared_ptr<MpiLink> link, at::Tensor output, at::Tensor input, ReduceOp op,
                             Result result)
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

std::vector<int> ReductionTask::awaits() const {
  std::vector<int> ranks = requests_[0].pending_peers();
  const std::vector<int> more = requests_[1].pending_peers();
  ranks.insert(ranks.end(), more.begin(), more.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return link_->group.watched()->to_world(ranks);
}

bool ReductionTask::advance() {
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

void ReductionTask::take_turn() {
  const int64_t bytes = 2 * (link_->group.size() - 1) * piece_elements_ * element_bytes_;
  if (!link_->staging.defined() || link_->staging.numel() < bytes) {
    const MemoryScope scope(MemoryClass::kCommunication);
    link_->staging = at::empty({bytes}, at::kByte);
  }
  begun_ = true;
}

bool ReductionTask::advance_reduction() {
  for (;;) {
    while (posted_ < num_pieces_ && posted_ < reduced_ + 2)
      post(posted_++);
    if (reduced_ == num_pieces_) return true;
    if (!requests_[static_cast<size_t>(reduced_ % 2)].test()) return false;
    reduce(reduced_++);
  }
}

bool ReductionTask::advance_gather() {
  MpiRequests& requests = requests_[0];
  if (!gathering_) {
    gathering_ = true;
    post_all_gather(*link_, requests, parts_, input_.data_ptr(), element_bytes_, tag_);
  }
  return requests.test();
}

// Elements of `input_` that `rank` reduces in `piece`.
Range ReductionTask::piece_of(int rank, int64_t piece) const {
  const Range part = all_reduce_all_ ? Range{0, input_.numel()} : parts_.part(rank);
  const int64_t begin = std::min(part.end, part.begin + piece * piece_elements_);
  return {begin, std::min(part.end, begin + piece_elements_)};
}

char* ReductionTask::staged(int64_t piece, int rank) const {
  const int own = link_->group.rank();
  const int64_t slot = (piece % 2) * (link_->group.size() - 1) + (rank < own ? rank : rank - 1);
  return static_cast<char*>(link_->staging.data_ptr()) + slot * piece_elements_ * element_bytes_;
}

char* ReductionTask::input_at(int64_t element) const {
  return static_cast<char*>(input_.data_ptr()) + element * element_bytes_;
}

void ReductionTask::post(int64_t piece) {
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

void ReductionTask::reduce(int64_t piece) {
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

}  // namespace vit_hybrid::comm
