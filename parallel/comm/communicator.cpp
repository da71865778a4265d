// Work: moves, completion, and what happens to one that nobody waited for.
#include "parallel/comm/communicator.h"

#include <exception>
#include <utility>

#include "src/base/error.h"

namespace vit_hybrid::comm {

Work::Work(std::unique_ptr<State> state) : state_(std::move(state)) {}

Work& Work::operator=(Work&& other) noexcept {
  VH_ASSERT(state_ == nullptr, "a Work was overwritten before it was waited for");
  state_ = std::move(other.state_);
  return *this;
}

Work::~Work() {
  if (state_ == nullptr) return;
  if (std::uncaught_exceptions() > 0) {
    leak();
    return;
  }
  VH_ASSERT(state_ == nullptr, "a Work was destroyed before it was waited for");
}

void Work::wait() {
  if (state_ == nullptr) return;
  try {
    state_->wait();
  } catch (...) {
    leak();
    throw;
  }
  state_.reset();
}

bool Work::test() {
  if (state_ == nullptr) return true;
  try {
    if (state_->test()) state_.reset();
  } catch (...) {
    leak();
    throw;
  }
  return state_ == nullptr;
}

void Work::leak() noexcept {
  state_->abandon();
  static_cast<void>(state_.release());
}

}  // namespace vit_hybrid::comm
