// SharedTask: the rounds of a collective through shared memory.
#include "parallel/comm/shared_memory/shared_tasks.h"

#include <utility>
#include <vector>

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

SharedTask::SharedTask(std::shared_ptr<SharedLink> link, Operation kind, int64_t bytes, int detail, int64_t num_rounds,
                       Phases phases)
    : link_(std::move(link)),
      signature_(make_signature(kind, detail, bytes)),
      num_rounds_(num_rounds),
      phases_(phases) {
  link_->queue.enter(*this);
}

bool SharedTask::advance() {
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

bool SharedTask::enter_rounds() {
  if (entered_ == num_rounds_ || !slots().may_enter(global(entered_))) return false;
  put_in(entered_, slot(slots().rank(), entered_));
  link_->slots.enter(global(entered_), signature_);
  ++entered_;
  return true;
}

bool SharedTask::reduce_rounds() {
  if (reduced_ == entered_ || !slots().all_entered(global(reduced_))) return false;
  check_signatures(reduced_);
  reduce_share(reduced_);
  link_->slots.mark_reduced(global(reduced_));
  ++reduced_;
  return true;
}

bool SharedTask::leave_rounds() {
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

void SharedTask::check_signatures(int64_t round) const {
  for (int r = 0; r < slots().size(); ++r) {
    const uint64_t other = slots().signature(r, global(round));
    if (other == signature_) continue;
    throw Error(ErrorClass::kInternal,
                str("rank ", link_->watched->world_rank(r), " is in ", signature_text(other), " while rank ",
                    link_->watched->world_rank(slots().rank()), " is in ", signature_text(signature_)));
  }
}

std::vector<int> SharedTask::awaits() const {
  if (!begun_ || left_ == num_rounds_) return {};
  return link_->watched->to_world(slots().missing(global(left_), phases_ == Phases::kThree));
}

}  // namespace vit_hybrid::comm
