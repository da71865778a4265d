// SharedSegment: an MPI-3 shared window, used by plain loads, stores and atomics.
#include "parallel/comm/shared_memory/shared_segment.h"

#include <sys/statvfs.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/operation_slot.h"
#include "src/base/error.h"

namespace vit_hybrid::comm {

namespace {

constexpr uintptr_t kAlignment = 64;
constexpr const char* kAxis = "control";

// Mappings begin at pages, so all processes move a pointer by the same distance.
std::byte* align(void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<std::byte*>(pointer) + (kAlignment - address % kAlignment) % kAlignment;
}

}  // namespace

struct SharedSegment::Window {
  std::shared_ptr<WatchedGroup> watched;
  MPI_Win window = MPI_WIN_NULL;
  std::vector<std::byte*> regions;
};

SharedSegment::SharedSegment(const MpiGroup& node, int64_t bytes_per_rank) : window_(std::make_unique<Window>()) {
  node.barrier();  // it waits more politely than what follows
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  // Each rank's region on pages of its own, and so in the memory next to it.
  check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
  const auto bytes = static_cast<MPI_Aint>(bytes_per_rank + static_cast<int64_t>(kAlignment));
  void* base = nullptr;
  window_->watched = node.watched();
  {
    const CollectiveScope scope(*window_->watched, kAxis, "building of shared memory", bytes);
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
  if (window_ == nullptr || !may_release_mpi()) return;
  const CollectiveScope scope(*window_->watched, kAxis, "freeing of shared memory");
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

}  // namespace vit_hybrid::comm
