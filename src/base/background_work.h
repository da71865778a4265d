// Work that waits for calls between the operations of a model: messages between hosts move in no other way.
#pragma once

#include <atomic>

namespace vit_hybrid {

namespace detail {
inline std::atomic<void (*)()> background_work{nullptr};
}  // namespace detail

/// `work` is called by do_background_work() from now on: whoever has some to do registers it once.
inline void set_background_work(void (*work)()) {
  detail::background_work = work;
}

/// Does what there is to do, and does not wait. To be called once a layer, by the main thread.
inline void do_background_work() {
  if (void (*const work)() = detail::background_work.load(std::memory_order_relaxed)) {
    work();
  }
}

}  // namespace vit_hybrid
