// The turns of a task among the rounds of its node: who has entered, who has reduced, and what the leader has sent.
#include "parallel/comm/nodes/node_task.h"

#include <string>
#include <utility>

#include "parallel/comm/node_board.h"
#include "src/base/error.h"
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

}  // namespace

NodeTask::NodeTask(std::shared_ptr<NodeLink> link, Operation kind, int64_t bytes, int detail, int64_t num_rounds,
                   bool reduces)
    : link_(std::move(link)),
      signature_(make_signature(kind, detail, bytes)),
      num_rounds_(num_rounds),
      reduces_(reduces) {
  if (leads_nodes()) exchanges_.assign(SharedSlots::kNumSlots, {link_->requests()});
  link_->queue().enter(*this);
}

bool NodeTask::advance() {
  before_ = static_cast<const NodeTask*>(link_->queue().before(*this));
  if (!begun_) {
    if (before_ != nullptr && !before_->begun_) return false;
    begun_ = true;
    first_round_ = slots().next_round();
    slots().take_rounds(num_rounds_);
  }
  bool moved = true;
  while (moved && left_ < num_rounds_) {
    moved = enter_rounds();
    moved = reduce_rounds() || moved;
    moved = lead_rounds() || moved;
    moved = leave_rounds() || moved;
    if (moved) note_move();
  }
  if (left_ < num_rounds_) return false;
  link_->queue().leave(*this);
  return true;
}

std::vector<int> NodeTask::awaits() const {
  if (!begun_ || left_ == num_rounds_) return {};
  std::vector<int> ranks = link_->slots().missing(global(left_), reduces_);
  for (int& rank : ranks)
    rank += static_cast<int>(own_ranks().begin);  // of the node: of the group
  if (ranks.empty() && leads_nodes()) {
    const int leader = link_->leader(link_->node(), global(left_));
    ranks = leader == link_->group().rank() ? exchange_of(left_).requests.pending_peers() : std::vector<int>{leader};
  }
  return link_->group().watched()->to_world(ranks);
}

bool NodeTask::enter_rounds() {
  if (entered_ == num_rounds_ || comes_after(&NodeTask::entered_) || !slots().may_enter(global(entered_))) {
    return false;
  }
  put_in(entered_);
  slots().enter(global(entered_), signature_);
  ++entered_;
  return true;
}

bool NodeTask::reduce_rounds() {
  if (reduced_ == entered_ || comes_after(&NodeTask::reduced_) || !slots().all_entered(global(reduced_))) return false;
  check_signatures(reduced_);
  reduce_share(reduced_);
  slots().mark_reduced(global(reduced_));  // also where nothing is: all operations share the counters
  ++reduced_;
  return true;
}

bool NodeTask::lead_rounds() {
  if (!leads_nodes()) return false;
  bool moved = false;
  for (int64_t round = led_; round < reduced_; ++round) {
    if (is_leader(round) && (!reduces_ || slots().all_reduced(global(round)))) {
      moved = exchange_round(round) || moved;
    }
  }
  if (comes_after(&NodeTask::led_)) return moved;
  for (; led_ < reduced_ && (!is_leader(led_) || exchange_of(led_).complete); ++led_) {
    if (!is_leader(led_)) continue;
    exchange_of(led_) = {link_->requests()};
    slots().mark_led(global(led_));
    moved = true;
  }
  return moved;
}

bool NodeTask::exchange_round(int64_t round) {
  Exchange& exchange = exchange_of(round);
  const int before = exchange.step;
  while (!exchange.complete && exchange.requests.test()) {
    exchange.complete = !post(round, exchange.step++, exchange.requests);
  }
  return exchange.step != before;
}

bool NodeTask::leave_rounds() {
  if (left_ == reduced_ || comes_after(&NodeTask::left_) || (reduces_ && !slots().all_reduced(global(left_))) ||
      (leads_nodes() && !slots().is_led(global(left_)))) {
    return false;
  }
  take_out(left_);
  slots().leave(global(left_));
  ++left_;
  return true;
}

void NodeTask::check_signatures(int64_t round) const {
  const WatchedGroup& group = *link_->group().watched();
  for (int r = 0; r < slots().size(); ++r) {
    const uint64_t other = slots().signature(r, global(round));
    if (other == signature_) continue;
    throw Error(
        ErrorClass::kInternal,
        str("rank ", group.world_rank(static_cast<int>(own_ranks().begin) + r), " is in ", signature_text(other),
            " while rank ", group.world_rank(link_->group().rank()), " is in ", signature_text(signature_)));
  }
}

void NodeTask::send(MpiRequests& requests, int64_t round, int step, int node, const void* data, int64_t bytes) const {
  const int leader = link_->leader(node, global(round));
  link_->count_sent(leader, bytes);
  requests.send(data, bytes, leader, tag(round, step));
}

void NodeTask::receive(MpiRequests& requests, int64_t round, int step, int node, void* data, int64_t bytes) const {
  requests.receive(data, bytes, link_->leader(node, global(round)), tag(round, step));
}

int NodeTask::tag(int64_t round, int step) const {
  VH_ASSERT(step < kMostSteps, str("step ", step));
  return 1 + static_cast<int>(global(round) % SharedSlots::kNumSlots) * kMostSteps + step;
}

}  // namespace vit_hybrid::comm
