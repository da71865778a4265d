// Emulator: a GPU's kernels on the host, in the form of grid, blocks, warps and threads.
//
// The threads of a block take turns in one of three orders, from one wait for each other (__syncthreads(),
// __shfl_xor_sync()) to the next: a kernel whose result depends on the order lacks a wait. In the program for
// ThreadSanitizer they are threads of the system, and it finds the memory that two of them use without a wait between.
// Blocks run one after the other. Arrays that end where memory does (GuardedArray) show what is touched behind them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>

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

/// Runs `kernel` once for each thread of the grid. Throws std::runtime_error where CUDA would refuse the grid or the
/// block, and where threads wait for some that do not come.
void launch(dim3 grid, dim3 block, const std::function<void()>& kernel);

/// A launch of a .cu file; streams are not emulated: it is done at once.
template <class Stream>
void launch_on(const Stream& /*stream*/, dim3 grid, dim3 block, const std::function<void()>& kernel) {
  launch(grid, block, kernel);
}

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

/// An array that ends at a page which must not be touched (but for the bytes that its alignment to 16 bytes takes),
/// filled with bytes of no meaning. `shift`: its first element lies so many elements behind an aligned address.
template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(int64_t count, int64_t shift = 0) : count_(count) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t needed = (static_cast<size_t>(count + shift) * sizeof(T) + 15) / 16 * 16;
    const size_t inner = (needed + page - 1) / page * page;
    bytes_ = inner + 2 * page;
    void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::runtime_error("mmap");
    memory_ = static_cast<char*>(mapped);
    mprotect(memory_, page, PROT_NONE);
    mprotect(memory_ + page + inner, page, PROT_NONE);
    data_ = reinterpret_cast<T*>(memory_ + page + inner - needed) + shift;
    std::memset(static_cast<void*>(data_), 0xA5, static_cast<size_t>(count) * sizeof(T));
  }
  ~GuardedArray() { munmap(memory_, bytes_); }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  T* data() const { return data_; }
  int64_t size() const { return count_; }
  T& operator[](int64_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }

 private:
  int64_t count_;
  size_t bytes_;
  char* memory_;
  T* data_;
};

}  // namespace vit_hybrid::testing
