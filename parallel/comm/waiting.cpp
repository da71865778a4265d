// Waiting: spin, then yield or sleep.
#include "parallel/comm/waiting.h"

#include <sched.h>
#include <time.h>

#include <atomic>

namespace vit_hybrid::comm {

namespace {
constexpr int kEagerLooks = 50;
constexpr timespec kNap{0, 20'000};
std::atomic<Waiting::Manner> g_manner{Waiting::Manner::kYield};
}  // namespace

void Waiting::set_manner(Manner manner) {
  g_manner = manner;
}

void Waiting::pause() {
  if (++looks_ < kEagerLooks) return;
  if (g_manner.load(std::memory_order_relaxed) == Manner::kSleep) {
    nanosleep(&kNap, nullptr);
  } else {
    sched_yield();
  }
}

}  // namespace vit_hybrid::comm
