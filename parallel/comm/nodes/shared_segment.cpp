// An MPI-3 shared window, used by plain loads, stores and atomics.
#include "parallel/comm/nodes/shared_segment.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <sys/statvfs.h>

#include <cstring>
#include <limits>
#include <new>

#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

constexpr uintptr_t kAlignment = 64;

// Mappings begin at pages, so all processes move a pointer by the same distance.
std::byte* align(void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<std::byte*>(pointer) + (kAlignment - address % kAlignment) % kAlignment;
}

}  // namespace

struct SharedSegment::Window {
  std::shared_ptr<WatchedGroup> watched;
  MPI_Win window = MPI_WIN_NULL;
  at::Tensor own;  // in place of a window, for a group of one
  std::vector<std::byte*> regions;
};

SharedSegment::SharedSegment(const MpiGroup& node, int64_t bytes_per_rank) : window_(std::make_unique<Window>()) {
  if (node.size() == 1) {
    const MemoryScope scope(MemoryClass::kCommunication);
    window_->own = at::empty({bytes_per_rank + static_cast<int64_t>(kAlignment)}, at::kByte);
    window_->regions.push_back(align(window_->own.data_ptr()));
    std::memset(region(0), 0, static_cast<size_t>(bytes_per_rank));
    return;
  }
  node.barrier();  // it waits more politely than what follows
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  // Each rank's region on pages of its own, and so in the memory next to it.
  check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
  const auto bytes = static_cast<MPI_Aint>(bytes_per_rank + static_cast<int64_t>(kAlignment));
  void* base = nullptr;
  window_->watched = node.watched();
  {
    const CollectiveScope scope(*window_->watched, kControlAxis, "building of shared memory", bytes);
    check_mpi(MPI_Win_allocate_shared(bytes, 1, info, mpi_comm(node), &base, &window_->window),
              "MPI_Win_allocate_shared");
  }
  check_mpi(MPI_Info_free(&info), "MPI_Info_free");
  for (int rank = 0; rank < node.size(); ++rank) {
    MPI_Aint size = 0;
    int unit = 0;
    check_mpi(MPI_Win_shared_query(window_->window, rank, &size, &unit, &base), "MPI_Win_shared_query");
    window_->regions.push_back(align(base));
  }
  std::memset(region(node.rank()), 0, static_cast<size_t>(bytes_per_rank));
  node.barrier();
}

SharedSegment::~SharedSegment() {
  if (window_ == nullptr || window_->window == MPI_WIN_NULL || !may_release_mpi()) return;
  const CollectiveScope scope(*window_->watched, kControlAxis, "freeing of shared memory");
  MPI_Win_free(&window_->window);
}

SharedSegment::SharedSegment(SharedSegment&&) noexcept = default;

std::byte* SharedSegment::region(int rank) const {
  return window_->regions[static_cast<size_t>(rank)];
}

int64_t free_shared_memory() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

struct SharedSlots::Control {
  alignas(64) std::atomic<uint64_t> entered{0};  // rounds entered, with their signatures:
  uint64_t signatures[kNumSlots] = {};
  alignas(64) std::atomic<uint64_t> reduced{0};
  alignas(64) std::atomic<uint64_t> led{0};
  alignas(64) std::atomic<uint64_t> left{0};
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "atomics must work between processes");

int64_t SharedSlots::bytes_per_rank(int64_t slot_bytes) {
  return static_cast<int64_t>(sizeof(Control)) + kNumSlots * slot_bytes;
}

SharedSlots::SharedSlots(const MpiGroup& group, int64_t slot_bytes)
    : rank_(group.rank()), size_(group.size()), slot_bytes_(slot_bytes), segment_(group, bytes_per_rank(slot_bytes)) {
  VH_ASSERT(slot_bytes % 64 == 0 && slot_bytes >= 8 * size_, str("slot_bytes ", slot_bytes, " for ", size_, " ranks"));
  new (segment_.region(rank_)) Control;
  for (int rank = 0; rank < size_; ++rank) {
    controls_.push_back(reinterpret_cast<Control*>(segment_.region(rank)));
  }
  group.barrier();
}

char* SharedSlots::slot(int rank, uint64_t round) const {
  std::byte* const slots = segment_.region(rank) + sizeof(Control);
  const auto index = static_cast<int64_t>(round % kNumSlots);
  return reinterpret_cast<char*>(slots + index * slot_bytes_);
}

bool SharedSlots::all_at_least(Counter counter, uint64_t value) const {
  for (const Control* const control : controls_) {
    if ((control->*counter).load(std::memory_order_acquire) < value) return false;
  }
  return true;
}

bool SharedSlots::may_enter(uint64_t round) const {
  return round < kNumSlots || all_at_least(&Control::left, round - kNumSlots + 1);
}

void SharedSlots::enter(uint64_t round, uint64_t signature) {
  Control& own = *controls_[static_cast<size_t>(rank_)];
  own.signatures[round % kNumSlots] = signature;
  own.entered.store(round + 1, std::memory_order_release);
}

bool SharedSlots::all_entered(uint64_t round) const {
  return all_at_least(&Control::entered, round + 1);
}

void SharedSlots::mark_reduced(uint64_t round) {
  controls_[static_cast<size_t>(rank_)]->reduced.store(round + 1, std::memory_order_release);
}

bool SharedSlots::all_reduced(uint64_t round) const {
  return all_at_least(&Control::reduced, round + 1);
}

void SharedSlots::mark_led(uint64_t round) {
  VH_ASSERT(leader(round) == rank_, str("rank ", rank_, " leads round ", round));
  controls_[static_cast<size_t>(rank_)]->led.store(round + 1, std::memory_order_release);
}

bool SharedSlots::is_led(uint64_t round) const {
  return controls_[static_cast<size_t>(leader(round))]->led.load(std::memory_order_acquire) > round;
}

void SharedSlots::leave(uint64_t round) {
  controls_[static_cast<size_t>(rank_)]->left.store(round + 1, std::memory_order_release);
}

uint64_t SharedSlots::signature(int rank, uint64_t round) const {
  return controls_[static_cast<size_t>(rank)]->signatures[round % kNumSlots];
}

std::vector<int> SharedSlots::below(Counter counter, uint64_t value) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    const Control& control = *controls_[static_cast<size_t>(rank)];
    if ((control.*counter).load(std::memory_order_acquire) < value) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> SharedSlots::missing(uint64_t round, bool reduce) const {
  const Control& own = *controls_[static_cast<size_t>(rank_)];
  if (own.entered.load(std::memory_order_relaxed) <= round) return below(&Control::left, round - kNumSlots + 1);
  std::vector<int> ranks = below(&Control::entered, round + 1);
  return ranks.empty() && reduce ? below(&Control::reduced, round + 1) : ranks;
}

}  // namespace vit_hybrid::comm
