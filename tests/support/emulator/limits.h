// What both ways of the emulator, fibers.cpp and threads.cpp, have in common: what a launch may be, and its blocks.
#pragma once

#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "tests/support/emulator/emulator.h"

namespace vit_hybrid::testing {

inline constexpr int kWarpLanes = 32;

/// The threads of a block. Throws for what CUDA does not launch; along y and z of a grid, for more than 32 blocks
/// instead of 65,535, except with RealGrids: small arrays show who does not heed a bound there.
inline int check_launch(dim3 grid, dim3 block) {
  constexpr unsigned kMostAlongX = 0x7FFFFFFF, kMostThreads = 1024, kMostAlongZ = 64;
  const unsigned most_along_others = RealGrids::are_real ? 65535 : 32;
  const auto refuse = [](const char* what, dim3 size) {
    throw std::runtime_error(std::string(what) + " of " + std::to_string(size.x) + " x " + std::to_string(size.y) +
                             " x " + std::to_string(size.z));
  };
  const auto is_within = [](unsigned size, unsigned most) { return size >= 1 && size <= most; };
  if (!is_within(grid.x, kMostAlongX) || !is_within(grid.y, most_along_others) ||
      !is_within(grid.z, most_along_others)) {
    refuse("a grid", grid);
  }
  if (!is_within(block.x, kMostThreads) || !is_within(block.y, kMostThreads) || !is_within(block.z, kMostAlongZ) ||
      uint64_t{block.x} * block.y * block.z > kMostThreads) {
    refuse("a block", block);
  }
  return static_cast<int>(block.x * block.y * block.z);
}

inline dim3 thread_number(int i, dim3 block) {
  const auto number = static_cast<unsigned>(i);
  return {number % block.x, number / block.x % block.y, number / (block.x * block.y)};
}

[[noreturn]] inline void refuse_waits(int threads, int done) {
  throw std::runtime_error(std::to_string(threads - done) + " of " + std::to_string(threads) +
                           " threads of a block wait for others that do not come");
}

/// Of the launch that runs.
inline std::optional<GuardedMemory>& shared_of_launch() {
  static std::optional<GuardedMemory> memory;
  return memory;
}

/// Calls run() with the place of the first thread of each block, for which shared memory is made anew.
template <class Run>
void for_blocks(dim3 grid, dim3 block, size_t shared_bytes, const Run& run) {
  constexpr size_t kMostSharedBytes = 227 << 10;
  if (shared_bytes > kMostSharedBytes) {
    throw std::runtime_error(std::to_string(shared_bytes) + " bytes of shared memory");
  }
  if (shared_bytes > 0) shared_of_launch().emplace(shared_bytes, 0);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        if (shared_bytes > 0) std::memset(shared_memory(), 0xFF, shared_bytes);
        run(EmulatedThread{{0, 0, 0}, {x, y, z}, block, grid});
      }
    }
  }
  check_guards();
  shared_of_launch().reset();
}

}  // namespace vit_hybrid::testing
