// A fake of NCCL: the program's own calls come here instead of to the library.
#include "tests/nccl/fake_nccl.h"

#include <unistd.h>

struct ncclComm {
  int polls_left = 0;
  int rank = 0;
  int size = 1;
  ncclComm_t child = nullptr;  // that comes with the last poll
  ncclComm_t* child_place = nullptr;
  bool is_aborted = false;
};

namespace {
constexpr int kUseAfterAbort = 99;
}

namespace vit_hybrid::testing {

FakeNccl& fake_nccl() {
  static FakeNccl fake;
  return fake;
}

}  // namespace vit_hybrid::testing

using vit_hybrid::testing::fake_nccl;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "another error";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return "as the fake was told";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  id->internal[0] = 'f';
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (id.internal[0] != 'f') return ncclInvalidArgument;  // it was not broadcast
  fake_nccl().configs.push_back(*config);
  *comm = new ncclComm{fake_nccl().polls, rank, size};
  return config->blocking == 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  if (parent->polls_left != 0) return ncclInvalidArgument;
  fake_nccl().configs.push_back(*config);
  *child = nullptr;
  parent->polls_left = fake_nccl().polls;
  parent->child = color == NCCL_SPLIT_NOCOLOR ? nullptr : new ncclComm{0, key, parent->size};
  parent->child_place = child;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm->is_aborted) _exit(kUseAfterAbort);
  if (comm->polls_left != 0) {
    --comm->polls_left;
    *error = ncclInProgress;
    return ncclSuccess;
  }
  if (comm->child_place != nullptr) {
    *comm->child_place = comm->child;
    comm->child_place = nullptr;
  }
  *error = fake_nccl().async_error;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ++fake_nccl().num_destroyed;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->is_aborted = true;
  return write(fake_nccl().abort_pipe, "a", 1) == 1 ? ncclSuccess : ncclSystemError;
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
