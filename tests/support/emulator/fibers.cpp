// The emulator with the threads of a block as fibers: one runs until it waits, then the next.
//
// A fiber begins by ucontext, once, and is then used for block after block. All other switches are by the compiler's
// setjmp and longjmp: swapcontext() asks the system for the signal mask each time, and AddressSanitizer takes the
// library's longjmp() for one that leaves functions.
#include <sanitizer/common_interface_defs.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/support/emulator/emulator.h"
#include "tests/support/emulator/limits.h"

namespace vit_hybrid::testing {

namespace {

constexpr size_t kStackBytes = size_t{136} << 10;

using Place = std::array<void*, 5>;  // of __builtin_setjmp()

enum class State { kReady, kAtBlock, kAtWarp, kDone };

struct Fiber {
  EmulatedThread place;
  Place at{};  // where it waits
  bool has_begun = false;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  State state = State::kDone;
  int number = 0;
  int num_exchanges = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's

  // Stacks begin in different lines of the caches: all lie at the same place of a page, and fibers are many.
  size_t stack_bytes() const { return kStackBytes - static_cast<size_t>(number) * 320 % 8192; }
};

// What the lanes of a warp give; in turns, because one may give again before the last has taken.
struct Warp {
  std::array<std::array<std::array<char, 16>, kWarpLanes>, 2> given;
};

ThreadOrder g_order = ThreadOrder::kAscending;
std::vector<std::unique_ptr<Fiber>> g_fibers;
std::vector<Warp> g_warps;
Fiber* g_running = nullptr;
bool g_has_waited = false;  // a thread of this launch
bool g_is_plain = false;    // the threads of this block are called one after the other
const std::function<void()>* g_kernel = nullptr;
Place g_scheduler;
const void* g_scheduler_stack = nullptr;
size_t g_scheduler_stack_bytes = 0;

#if defined(__SANITIZE_ADDRESS__)
void begin_switch(void** fake_stack, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
}
void end_switch(void* fake_stack, const void** from, size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
}
#else
void begin_switch(void** /*fake_stack*/, const void* /*stack*/, size_t /*bytes*/) {}
void end_switch(void* /*fake_stack*/, const void** /*from*/, size_t* /*bytes*/) {}
#endif

__attribute__((noinline, no_sanitize("address"))) void to_scheduler(State state) {
  if (g_is_plain) throw std::runtime_error("a block waits where the first block of the grid did not");
  Fiber& fiber = *g_running;
  g_has_waited = g_has_waited || state != State::kDone;
  fiber.state = state;
  begin_switch(&fiber.fake_stack, g_scheduler_stack, g_scheduler_stack_bytes);
  if (__builtin_setjmp(fiber.at.data()) == 0) __builtin_longjmp(g_scheduler.data(), 1);
  end_switch(fiber.fake_stack, nullptr, nullptr);
}

void run_fiber() {
  end_switch(nullptr, &g_scheduler_stack, &g_scheduler_stack_bytes);
  for (;;) {
    (*g_kernel)();
    to_scheduler(State::kDone);
  }
}

[[noreturn]] __attribute__((no_sanitize("address"))) void begin(Fiber& fiber) {
  fiber.has_begun = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = fiber.stack_bytes();
  context.uc_link = nullptr;
  makecontext(&context, &run_fiber, 0);
  setcontext(&context);
  std::abort();
}

__attribute__((noinline, no_sanitize("address"))) void resume(Fiber& fiber) {
  g_running = &fiber;
  void* fake_stack = nullptr;
  begin_switch(&fake_stack, fiber.stack.get(), fiber.stack_bytes());
  if (__builtin_setjmp(g_scheduler.data()) == 0) {
    if (!fiber.has_begun) begin(fiber);
    __builtin_longjmp(fiber.at.data(), 1);
  }
  end_switch(fake_stack, nullptr, nullptr);
}

std::vector<int> turns_of(int threads) {
  std::vector<int> turns(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    turns[static_cast<size_t>(i)] = g_order == ThreadOrder::kDescending ? threads - 1 - i : i;
  }
  if (g_order == ThreadOrder::kScattered) {
    constexpr int kPrime = 7919;
    std::sort(turns.begin(), turns.end(),
              [](int a, int b) { return std::pair((a * kPrime) % 1009, a) < std::pair((b * kPrime) % 1009, b); });
  }
  return turns;
}

int count(int begin, int end, State state) {
  return static_cast<int>(std::count_if(g_fibers.begin() + begin, g_fibers.begin() + end,
                                        [&](const auto& fiber) { return fiber->state == state; }));
}

void wake(int begin, int end) {
  for (int i = begin; i < end; ++i)
    g_fibers[static_cast<size_t>(i)]->state = State::kReady;
}

// Lets those go on that have all come to where they wait for each other. Whether there were any.
bool wake_met(int threads) {
  bool any = false;
  for (int begin = 0; begin < threads; begin += kWarpLanes) {
    const int end = std::min(begin + kWarpLanes, threads);
    if (count(begin, end, State::kAtWarp) == kWarpLanes) {
      wake(begin, end);
      any = true;
    }
  }
  if (count(0, threads, State::kAtBlock) == threads) {
    wake(0, threads);
    any = true;
  }
  return any;
}

void run_block(const EmulatedThread& first, const std::vector<int>& turns) {
  const auto threads = static_cast<int>(turns.size());
  while (static_cast<int>(g_fibers.size()) < threads)
    g_fibers.push_back(std::make_unique<Fiber>());
  g_warps.assign(static_cast<size_t>((threads + kWarpLanes - 1) / kWarpLanes), Warp());
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = *g_fibers[static_cast<size_t>(i)];
    fiber.place = first;
    fiber.place.thread = thread_number(i, first.block_size);
    fiber.number = i;
    fiber.num_exchanges = 0;
    fiber.state = State::kReady;
  }
  do {
    for (const int i : turns) {
      Fiber& fiber = *g_fibers[static_cast<size_t>(i)];
      if (fiber.state == State::kReady) resume(fiber);
    }
  } while (wake_met(threads));
  const int done = count(0, threads, State::kDone);
  if (done != threads) {
    g_fibers.clear();  // nobody goes on in them
    refuse_waits(threads, done);
  }
}

// Where no thread waits, none needs to be a fiber, which is much slower.
void run_block_plainly(const EmulatedThread& first, const std::vector<int>& turns) {
  if (g_fibers.empty()) g_fibers.push_back(std::make_unique<Fiber>());
  g_running = g_fibers.front().get();
  g_is_plain = true;
  for (const int i : turns) {
    g_running->place = first;
    g_running->place.thread = thread_number(i, first.block_size);
    (*g_kernel)();
  }
  g_is_plain = false;
}

}  // namespace

const EmulatedThread& emulated_thread() {
  return g_running->place;
}

void set_thread_order(ThreadOrder order) {
  g_order = order;
}

void launch(dim3 grid, dim3 block, const std::function<void()>& kernel, size_t shared_bytes) {
  const int threads = check_launch(grid, block);
  g_kernel = &kernel;
  g_has_waited = g_is_plain = false;
  const std::vector<int> turns = turns_of(threads);
  bool is_first = true;
  for_blocks(grid, block, shared_bytes, [&](const EmulatedThread& first) {
    if (std::exchange(is_first, false) || g_has_waited) {
      run_block(first, turns);
    } else {
      run_block_plainly(first, turns);
    }
  });
}

void* shared_memory() {
  return shared_of_launch()->data();
}

void wait_for_block() {
  to_scheduler(State::kAtBlock);
}

void exchange_in_warp(const void* mine, void* theirs, size_t bytes, int distance) {
  Fiber& own = *g_running;
  auto& given = g_warps[static_cast<size_t>(own.number / kWarpLanes)].given[own.num_exchanges++ % 2];
  const auto lane = static_cast<size_t>(own.number % kWarpLanes);
  std::memcpy(given[lane].data(), mine, bytes);
  to_scheduler(State::kAtWarp);
  std::memcpy(theirs, given[lane ^ static_cast<size_t>(distance)].data(), bytes);
}

}  // namespace vit_hybrid::testing
