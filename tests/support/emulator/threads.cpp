// The emulator with the threads of a block as threads of the system, for ThreadSanitizer.
#include <array>
#include <barrier>
#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "tests/support/emulator/emulator.h"
#include "tests/support/emulator/limits.h"

namespace vit_hybrid::testing {

namespace {

struct Warp {
  explicit Warp(int lanes) : meeting(lanes) {}
  std::barrier<> meeting;
  // In turns, because one lane may give again before the last has taken.
  std::array<std::array<std::array<char, 16>, kWarpLanes>, 2> given{};
};

struct Block {
  explicit Block(int threads) : meeting(threads) {
    for (int begin = 0; begin < threads; begin += kWarpLanes)
      warps.push_back(std::make_unique<Warp>(kWarpLanes));
  }
  std::barrier<> meeting;
  std::vector<std::unique_ptr<Warp>> warps;
};

Block* g_block = nullptr;
EmulatedThread g_first;  // of the block
const std::function<void()>* g_kernel = nullptr;
thread_local EmulatedThread g_place;
thread_local int g_number = 0;
thread_local int g_num_exchanges = 0;
std::counting_semaphore<> g_done{0};

// A thread of the system that is one of each block. They are kept: to make one costs more than a block.
struct Worker {
  explicit Worker(int number) {
    std::thread([this, number] {
      for (g_number = number;; g_done.release()) {
        start.acquire();
        g_place = g_first;
        g_place.thread = thread_number(number, g_first.block_size);
        g_num_exchanges = 0;
        (*g_kernel)();
        g_block->meeting.arrive_and_drop();
      }
    }).detach();
  }
  std::binary_semaphore start{0};
};

// Never destroyed: its threads run until the process ends.
std::vector<std::unique_ptr<Worker>>& workers() {
  static auto* const all = new std::vector<std::unique_ptr<Worker>>;
  return *all;
}

void run_block(const EmulatedThread& first, int threads) {
  Block own(threads);
  g_block = &own;
  g_first = first;
  for (int i = 0; i < threads; ++i)
    workers()[static_cast<size_t>(i)]->start.release();
  for (int i = 0; i < threads; ++i)
    g_done.acquire();
}

}  // namespace

const EmulatedThread& emulated_thread() {
  return g_place;
}

void set_thread_order(ThreadOrder /*order*/) {}

void launch(dim3 grid, dim3 block, const std::function<void()>& kernel, size_t shared_bytes) {
  const int threads = check_launch(grid, block);
  g_kernel = &kernel;
  while (static_cast<int>(workers().size()) < threads)
    workers().push_back(std::make_unique<Worker>(static_cast<int>(workers().size())));
  for_blocks(grid, block, shared_bytes, [&](const EmulatedThread& first) { run_block(first, threads); });
}

void* shared_memory() {
  return shared_of_launch()->data();
}

void wait_for_block() {
  g_block->meeting.arrive_and_wait();
}

void exchange_in_warp(const void* mine, void* theirs, size_t bytes, int distance) {
  Warp& warp = *g_block->warps[static_cast<size_t>(g_number / kWarpLanes)];
  auto& given = warp.given[static_cast<size_t>(g_num_exchanges++ % 2)];
  const auto lane = static_cast<size_t>(g_number % kWarpLanes);
  std::memcpy(given[lane].data(), mine, bytes);
  warp.meeting.arrive_and_wait();
  std::memcpy(theirs, given[lane ^ static_cast<size_t>(distance)].data(), bytes);
}

}  // namespace vit_hybrid::testing
