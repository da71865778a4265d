// A fake of NCCL: the program's own calls come here instead of to the library.
#include "tests/parallel/comm/nccl/fake_nccl.h"

#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

struct ncclComm {
  ncclComm(int own_rank, int num_ranks) : rank(own_rank), size(num_ranks) {}

  int rank;
  int size;
  bool is_aborted = false;

  std::thread thread;  // of the call that is in progress
  std::mutex mutex;
  std::condition_variable looked_at;
  int looks_left = 0;
  ncclResult_t state = ncclSuccess;
};

using vit_hybrid::testing::fake_nccl;

namespace {

constexpr int kUseAfterAbort = 99;

bool is_busy(ncclComm_t comm) {
  const std::lock_guard lock(comm->mutex);
  return comm->state == ncclInProgress;
}

void go_on_in_thread(ncclComm_t comm, std::function<void()> work) {
  comm->state = ncclInProgress;
  comm->looks_left = fake_nccl().polls;
  comm->thread = std::thread([comm, work = std::move(work)] {
    std::unique_lock lock(comm->mutex);
    comm->looked_at.wait(lock, [comm] { return comm->looks_left == 0; });
    work();
    comm->state = ncclSuccess;
  });
}

}  // namespace

namespace vit_hybrid::testing {

FakeNccl& fake_nccl() {
  static FakeNccl fake;
  return fake;
}

void end_thread_of(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->mutex);
    comm->looks_left = 0;
  }
  comm->looked_at.notify_all();
  comm->thread.join();
}

}  // namespace vit_hybrid::testing

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "another error";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return fake_nccl().last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  id->internal[0] = 'f';
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (id.internal[0] != 'f') return ncclInvalidArgument;  // it was not broadcast
  fake_nccl().configs.push_back(*config);
  *comm = new ncclComm(rank, size);
  if (config->blocking != 0) return ncclSuccess;
  go_on_in_thread(*comm, [] {});
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  if (is_busy(parent)) return ncclInvalidArgument;
  fake_nccl().configs.push_back(*config);
  *child = nullptr;
  const bool makes_one = color != NCCL_SPLIT_NOCOLOR && fake_nccl().makes_children;
  go_on_in_thread(parent, [=] { *child = makes_one ? new ncclComm(key, parent->size) : nullptr; });
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm->is_aborted) _exit(kUseAfterAbort);
  {
    const std::lock_guard lock(comm->mutex);
    *error = comm->state;
    if (comm->looks_left > 0) --comm->looks_left;
  }
  comm->looked_at.notify_all();
  if (*error == ncclInProgress) return ncclSuccess;
  if (comm->thread.joinable()) comm->thread.join();
  *error = fake_nccl().async_error;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  if (is_busy(comm)) return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  if (is_busy(comm)) return ncclInvalidArgument;
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (is_busy(comm)) return ncclInvalidArgument;
  ++fake_nccl().num_destroyed;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->is_aborted = true;
  const char* const how = fake_nccl().group_depth > 0 ? "g" : "a";
  return write(fake_nccl().abort_pipe, how, 1) == 1 ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclGroupStart() {
  ++fake_nccl().group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  --fake_nccl().group_depth;
  return ncclInProgress;
}

}  // extern "C"
