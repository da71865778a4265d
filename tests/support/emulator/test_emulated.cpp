// What the emulator finds: kernels with planted faults, and one without.
#include <string>

#include "tests/support/emulator/device_words.h"
#include "tests/support/emulator/kernel_test.h"

using namespace vit_hybrid::testing;

namespace {

constexpr int kThreads = 64;

// Each thread takes what its neighbour wrote.
__global__ void shift_kernel(const int* from, int* to, bool waits) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = from[threadIdx.x];
  if (waits) __syncthreads();
  to[threadIdx.x] = shared[(threadIdx.x + 1) % kThreads];
}

std::vector<int> shifted(ThreadOrder order, bool waits) {
  std::vector<int> from(kThreads), to(kThreads);
  static int base = 0;
  base += 1000;  // what an earlier launch has left is something else
  for (int i = 0; i < kThreads; ++i)
    from[static_cast<size_t>(i)] = base + i;
  set_thread_order(order);
  launch(1, kThreads, [&] { shift_kernel(from.data(), to.data(), waits); });
  for (int& value : to)
    value -= base;
  return to;
}

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("emulator: threads that wait for each other see what the others wrote, in any order") {
  for (const auto order : {ThreadOrder::kAscending, ThreadOrder::kDescending, ThreadOrder::kScattered})
    CHECK(shifted(order, true) == shifted(ThreadOrder::kAscending, true));
}

TEST_CASE("emulator: without a wait the result depends on the order") {
  if (kByThreads) return;  // ThreadSanitizer tells it
  CHECK(shifted(ThreadOrder::kAscending, false) != shifted(ThreadOrder::kDescending, false));
  CHECK(shifted(ThreadOrder::kScattered, false) != shifted(ThreadOrder::kDescending, false));
}

TEST_CASE("emulator: each thread is called once, with its place") {
  for (const auto order : {ThreadOrder::kAscending, ThreadOrder::kDescending, ThreadOrder::kScattered}) {
    set_thread_order(order);
    std::vector<int> calls(2 * 3 * 4 * 5);
    launch(dim3(2, 3), dim3(4, 5), [&] {
      ++calls[((blockIdx.y * gridDim.x + blockIdx.x) * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x];
    });
    CHECK(calls == std::vector<int>(calls.size(), 1));
  }
}

TEST_CASE("emulator: lanes exchange what they give, over and over") {
  std::vector<int> results(kThreads);
  launch(1, kThreads, [&] {
    int value = static_cast<int>(threadIdx.x);
    for (int distance = 16; distance > 0; distance /= 2)
      value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
    results[threadIdx.x] = value;
  });
  for (int i = 0; i < kThreads; ++i)
    CHECK(results[static_cast<size_t>(i)] == (i < 32 ? 31 * 16 : 31 * 16 + 32 * 32));
}

TEST_CASE("emulator: what CUDA does not launch, and threads that wait in vain, are refused") {
  const auto nothing = [] {};
  CHECK(refusal([&] { launch(dim3(1, 65536), 32, nothing); }) == "a grid of 1 x 65536 x 1");
  CHECK(refusal([&] { launch(0, 32, nothing); }) == "a grid of 0 x 1 x 1");
  CHECK(refusal([&] { launch(1, dim3(64, 32), nothing); }) == "a block of 64 x 32 x 1");
  if (kByThreads) return;  // who waits in vain would hang
  CHECK(refusal([&] {
          launch(1, 64, [] {
            if (threadIdx.x < 32) __syncthreads();
          });
        }) == "32 of 64 threads of a block wait for others that do not come");
  CHECK(refusal([&] {
          launch(2, 32, [] {
            if (blockIdx.x == 1) __syncthreads();
          });
        }) == "a block waits where the first block of the grid did not");
}
