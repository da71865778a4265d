// Host tensors' memory: freed blocks are used again, the process holds little more than was in use at most, and a block
// that the system does not have is an error that knows what was asked for.
#include <c10/util/Exception.h>
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "src/base/host_allocator.h"
#include "src/base/memory_tracker.h"

using namespace vit_hybrid;

namespace {

constexpr size_t kMiB = 1 << 20;

bool is_mapped(void* block) {
  unsigned char resident = 0;
  return mincore(block, 1, &resident) == 0;
}

// The process may map nothing more while this lives.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    getrlimit(RLIMIT_AS, &before_);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(process_bytes());
    setrlimit(RLIMIT_AS, &none);
  }
  ~NoMoreMemory() { setrlimit(RLIMIT_AS, &before_); }
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

 private:
  static int64_t process_bytes() {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  }
  rlimit before_{};
};

}  // namespace

TEST_CASE("block pool: the block of a size that was freed last is the next one, as it was left") {
  BlockPool pool;
  void* const first = pool.take(3 * kMiB);
  void* const second = pool.take(3 * kMiB - 1);
  std::memset(first, 7, 3 * kMiB);
  CHECK(reinterpret_cast<uintptr_t>(first) % 64 == 0);
  pool.give(second);
  pool.give(first);
  CHECK(pool.figures().kept == 6 * kMiB);
  CHECK(pool.take(3 * kMiB - 5) == first);
  CHECK(static_cast<char*>(first)[kMiB] == 7);
  CHECK(pool.take(3 * kMiB) == second);
  CHECK(pool.figures().mapped == 2);
  CHECK(pool.figures().kept == 0);
  CHECK(pool.figures().most_held == 6 * kMiB);
  pool.give(first);
  pool.give(second);
}

TEST_CASE("block pool: what all blocks take is at most a 32nd more than was in use; what was freed first goes first") {
  constexpr size_t kUnit = 16 * kMiB;  // nothing writes to it
  BlockPool pool;
  std::vector<void*> blocks;
  for (size_t i = 0; i < 8; ++i) {
    blocks.push_back(pool.take((i + 4) * kUnit));
  }
  const size_t most = pool.figures().used;
  for (void* const block : blocks) {
    pool.give(block);
  }
  void* const small = pool.take(kUnit);  // 60 + 1 <= 60 + 60 / 32 of them
  CHECK(pool.figures().kept == most);
  CHECK(pool.figures().most_held == most + kUnit);
  void* const other = pool.take(kUnit);
  CHECK(is_mapped(blocks[1]));
  CHECK(pool.figures().kept == most - 4 * kUnit);  // without the first; a new one may lie where it was
  void* const larger = pool.take(most);
  CHECK(pool.figures().kept <= (most + 2 * kUnit) / 32);
  for (void* const block : {small, other, larger}) {
    pool.give(block);
  }
}

TEST_CASE("block pool: of little memory an 8th is kept") {
  BlockPool pool;
  void* const large = pool.take(60 * kMiB);
  void* const of_other_size = pool.take(4 * kMiB);
  pool.give(of_other_size);
  void* const at_most = pool.take(4 * kMiB + 1);  // 4 MiB kept beside 64 in use
  CHECK(is_mapped(of_other_size));
  void* const more = pool.take(4 * kMiB);
  pool.give(more);
  void* const beyond = pool.take(5 * kMiB);  // 4 kept beside 69, at most
  CHECK(more == of_other_size);
  CHECK(is_mapped(more));
  pool.give(beyond);
  void* const last = pool.take(6 * kMiB);  // 9 beside 70 are more than an 8th; it may lie where `more` was
  CHECK(pool.figures().kept == 5 * kMiB);
  CHECK(is_mapped(beyond));
  for (void* const block : {large, at_most, last}) {
    pool.give(block);
  }
}

TEST_CASE("block pool: steps of the same sizes map nothing after the first, in any order of their frees") {
  BlockPool pool;
  std::mt19937 random(20261129);
  int64_t of_first = 0;
  for (int step = 0; step < 5; ++step) {
    std::vector<void*> blocks;
    for (size_t i = 0; i < 40; ++i) {
      blocks.push_back(pool.take((i % 7 + 1) * kMiB));
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (void* const block : blocks) {
      pool.give(block);
    }
    of_first = step == 0 ? pool.figures().mapped : of_first;
  }
  CHECK(of_first == 40);
  CHECK(pool.figures().mapped == of_first);
}

TEST_CASE("block pool: threads take and give each other's blocks, and no two have the same one") {
  BlockPool pool;
  std::mutex mutex;
  std::vector<std::pair<size_t*, size_t>> shared;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (size_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      std::mt19937 random(static_cast<unsigned>(number));
      for (size_t i = 0; i < 2000; ++i) {
        const size_t mark = number * 10000 + i;
        auto* const block = static_cast<size_t*>(pool.take((random() % 5 + 1) << 20));
        *block = mark;
        std::pair<size_t*, size_t> taken{nullptr, 0};
        {
          const std::lock_guard lock(mutex);
          shared.emplace_back(block, mark);
          std::swap(shared[random() % shared.size()], shared.back());
          if (shared.size() > 16) {
            taken = shared.back();
            shared.pop_back();
          }
        }
        if (taken.first != nullptr) {
          wrong += *taken.first == taken.second ? 0 : 1;
          pool.give(taken.first);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& [block, mark] : shared) {
    wrong += *block == mark ? 0 : 1;
    pool.give(block);
  }
  CHECK(wrong == 0);
  const BlockPool::Figures figures = pool.figures();
  CHECK(figures.used == 0);
  CHECK(figures.kept <= figures.most_used + figures.most_used / 8);
}

TEST_CASE("block pool: where the system has no more, kept blocks make room before a block is refused") {
  BlockPool pool;
  std::vector<void*> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(pool.take(64 * kMiB));
  }
  pool.give(blocks[0]);
  pool.give(blocks[1]);
  pool.give(pool.take(100 * kMiB));  // in their place
  {
    const NoMoreMemory none;  // above 164 MiB, of which 64 are in use
    void* const block = pool.take(30 * kMiB);
    CHECK(block != nullptr);
    CHECK(pool.figures().kept == 0);
    CHECK(pool.take(80 * kMiB) == nullptr);
    pool.give(block);
  }
  pool.give(blocks[2]);
}

TEST_CASE("host allocator: classes are charged, large or small, and a failure says what was asked for") {
  const MemoryTracker::Attachment attachment;
  const MemoryScope scope(MemoryClass::kData);
  const auto current = [] { return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kData)]; };
  const int64_t before = current();
  for (const size_t bytes : {size_t{100}, kLeastPooled - 1, kLeastPooled, 3 * kMiB + 1}) {
    c10::DataPtr data = host_allocator().allocate(bytes);
    CHECK(current() - before == static_cast<int64_t>(bytes));
    CHECK(reinterpret_cast<uintptr_t>(data.get()) % 64 == 0);
    CHECK(data.device().is_cpu());
  }
  CHECK(current() == before);
  constexpr size_t kTooMuch = size_t{1} << 46;
  try {
    host_allocator().allocate(kTooMuch);
    FAIL("64 TiB were given");
  } catch (const std::exception& error) {
    CHECK(is_missing_memory(error));
    CHECK(tells_of_memory(error.what()));
  }
  const auto failure = MemoryTracker::last_failure();
  REQUIRE(failure);
  CHECK(failure->bytes == int64_t{1} << 46);
  CHECK(failure->memory_class == MemoryClass::kData);
}
