// What the emulator finds: kernels with planted faults, and one without.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
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

// Element `from`, of the array or not, becomes element `to`.
__global__ void copy_kernel(const c10::Half* array, int from, c10::Half* target, int to) {
  target[to] = array[from];
}

__global__ void copy_vector_kernel(const float* from, float* to) {
  vit_hybrid::kernels::store_vector(to, vit_hybrid::kernels::load_vector<4>(from));
}

// Counts the repeats that it has, of which a block takes every `stride`th.
__global__ void count_kernel(float* counts, int64_t repeats, int64_t stride) {
  for (int64_t i = blockIdx.y; i < repeats; i += stride)
    counts[i] = (counts[i] > 0.0F ? counts[i] : 0.0F) + 1.0F;  // what nobody has written is no number
}

// What is said by a process of its own that ends in run(); empty if run() comes back.
std::string last_words(const std::function<void()>& run) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    run();
    _exit(0);
  }
  close(ends[1]);
  std::string words;
  std::array<char, 4096> bytes{};
  for (ssize_t got = 0; (got = read(ends[0], bytes.data(), bytes.size())) > 0;)
    words.append(bytes.data(), static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status == 0 ? "" : words;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
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
  CHECK(refusal([&] { launch(dim3(1, 33), 32, nothing); }) == "a grid of 1 x 33 x 1");
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

TEST_CASE("emulator: what a kernel writes outside of an array is found after its launch") {
  // Where AddressSanitizer, which knows memory by 8 bytes, does not see it.
  const GuardedArray<c10::Half> array(33, 1);
  fill(array, 1);
  const auto writes = [&](int to) {
    return refusal([&] { launch(1, 1, [&] { copy_kernel(array.data(), 0, array.data(), to); }); });
  };
  CHECK(writes(0).empty());
  CHECK(writes(32).empty());
  CHECK(writes(-1) == "byte -2 of an array of 66 was written");
  CHECK(writes(0).empty());  // it is told once
  if (kByThreads) CHECK(writes(33) == "byte 66 of an array of 66 was written");
}

TEST_CASE(
    "emulator: who reads or writes one element outside of an array, or a vector that is not aligned, is stopped") {
  if (kByThreads) return;  // by AddressSanitizer and UndefinedBehaviorSanitizer
  const GuardedArray<c10::Half> array(33), same(33);
  fill(array, 1);
  const auto words = [&](int from, int to) {
    return last_words([&] { launch(1, 1, [&] { copy_kernel(array.data(), from, same.data(), to); }); });
  };
  CHECK(words(32, 32).empty());
  for (const int outside : {-1, 33}) {
    CHECK(contains(words(outside, 0), "READ of size 2"));
    CHECK(contains(words(0, outside), "WRITE of size 2"));
  }
  const GuardedArray<float> vectors(8), copy(4);
  fill(vectors, 2);
  const auto copied = [&](int from) {
    return last_words([&] { launch(1, 1, [&] { copy_vector_kernel(vectors.data() + from, copy.data()); }); });
  };
  CHECK(copied(4).empty());
  CHECK(contains(copied(1), "misaligned address"));
  // By the host, which no launch follows.
  CHECK(contains(last_words([] { GuardedArray<c10::Half>(3, 1)[-1] = c10::Half(1.0F); }),
                 "byte -2 of an array of 6 was written"));
}

TEST_CASE("emulator: an element that nobody has written is no number in any type") {
  for_types([](auto zero) {
    const GuardedArray<decltype(zero)> array(5, 1);
    CHECK(relative_error(array, std::vector<double>(5, 0.0)) == std::numeric_limits<double>::infinity());
  });
}

TEST_CASE("emulator: strides that are wrong leave elements out, or take them twice") {
  constexpr int64_t kRepeats = 5 * kMostBlocksBeforeStrides + 2;
  const unsigned blocks = vit_hybrid::kernels::repeats_of_grid(kRepeats);
  CHECK(blocks == kMostBlocksBeforeStrides);
  const auto error = [&](int64_t stride) {
    const GuardedArray<float> counts(kRepeats);
    launch(dim3(1, blocks), 1, [&] { count_kernel(counts.data(), kRepeats, stride); });
    return relative_error(counts, std::vector<double>(kRepeats, 1.0));
  };
  CHECK(error(blocks) == 0.0);
  CHECK(error(65535) == std::numeric_limits<double>::infinity());
  CHECK(error(blocks + 1) == std::numeric_limits<double>::infinity());
  CHECK(error(blocks - 1) == 1.0);
}
