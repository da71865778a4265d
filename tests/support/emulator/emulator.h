// Emulator: a GPU's kernels on the host, in the form of grid, blocks, warps and threads.
//
// The threads of a block take turns in one of three orders, from one wait for each other (__syncthreads(),
// __shfl_xor_sync()) to the next: a kernel whose result depends on the order lacks a wait. In the program for
// ThreadSanitizer they are threads of the system, and it finds the memory that two of them use without a wait between.
// Blocks run one after the other. Around arrays (GuardedArray) nothing may be touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace vit_hybrid::testing {

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned the_x = 1, unsigned the_y = 1, unsigned the_z = 1) : x(the_x), y(the_y), z(the_z) {}
};

/// Who calls.
struct EmulatedThread {
  dim3 thread;
  dim3 block;
  dim3 block_size;
  dim3 grid_size;
};
const EmulatedThread& emulated_thread();

enum class ThreadOrder { kAscending, kDescending, kScattered };
/// Of all launches from now on.
void set_thread_order(ThreadOrder order);

/// Blocks along a dimension of a grid for what goes on in strides (blocks_of_grid() of src/kernels/element_vector.h):
/// so few that small arrays take strides.
inline constexpr int64_t kMostBlocksBeforeStrides = 7;

/// While one lives, grids are bounded as a GPU's are.
class RealGrids {
 public:
  RealGrids() { are_real = true; }
  ~RealGrids() { are_real = false; }
  RealGrids(const RealGrids&) = delete;
  RealGrids& operator=(const RealGrids&) = delete;

  static inline bool are_real = false;
};

/// Runs `kernel` once for each thread of the grid. Throws std::runtime_error where CUDA would refuse the grid or the
/// block, where threads wait for some that do not come, and where something was written outside of a GuardedArray.
/// `shared_bytes`: of shared_memory().
void launch(dim3 grid, dim3 block, const std::function<void()>& kernel, size_t shared_bytes = 0);

/// A launch of a .cu file; streams are not emulated: it is done at once.
template <class Stream>
void launch_on(const Stream& /*stream*/, dim3 grid, dim3 block, const std::function<void()>& kernel,
               size_t shared_bytes = 0) {
  launch(grid, block, kernel, shared_bytes);
}

/// Shared memory whose size the launch says: bytes 0xFF in each new block, with nothing to touch around them.
void* shared_memory();

/// __syncthreads(): all threads of the block come here.
void wait_for_block();

/// All 32 threads of a warp give up to 16 bytes, and get those of the lane at that distance (exclusive or).
void exchange_in_warp(const void* mine, void* theirs, size_t bytes, int distance);

/// __shfl_xor_sync().
template <class T>
T value_of_lane(unsigned mask, T value, int distance) {
  static_assert(sizeof(T) <= 16);
  if (mask != 0xFFFFFFFFU) throw std::runtime_error("a part of a warp is not emulated");
  T result{};
  exchange_in_warp(&value, &result, sizeof(T), distance);
  return result;
}

/// __any_sync().
inline bool is_any_of_warp(unsigned mask, bool value) {
  for (int distance = 1; distance < 32; distance *= 2) {
    const bool other = value_of_lane(mask, value, distance);
    value = value || other;
  }
  return value;
}

/// Memory that ends at a page which must not be touched, and begins behind one. All bytes between them are 0xFF, which
/// are no number in any type. Those outside of the memory are poisoned where AddressSanitizer is there, and looked at
/// after each launch and at the end.
class GuardedMemory {
 public:
  /// `bytes` of them, `shift` behind an address of 16 bytes.
  GuardedMemory(size_t bytes, size_t shift);
  /// Says what was written outside since the last launch, and aborts.
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* data() const { return data_; }
  /// What was written outside of it, once; empty if nothing was.
  std::string damage() const;

 private:
  size_t bytes_, inner_bytes_;
  unsigned char* inner_;  // between the pages
  unsigned char* data_;
};

/// Throws std::runtime_error for what was written outside of a GuardedMemory.
void check_guards();

/// An array in such memory: it ends less than 16 bytes before the page. `shift`: its first element lies so many
/// elements behind an address of 16 bytes.
template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(int64_t count, int64_t shift = 0)
      : count_(count), memory_(static_cast<size_t>(count) * sizeof(T), static_cast<size_t>(shift) * sizeof(T)) {}

  T* data() const { return static_cast<T*>(memory_.data()); }
  int64_t size() const { return count_; }
  T& operator[](int64_t i) const { return data()[i]; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }

 private:
  int64_t count_;
  GuardedMemory memory_;
};

}  // namespace vit_hybrid::testing
