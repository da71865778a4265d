// A fake of the functions of NCCL that connect and end communicators; what a test sets and sees.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

namespace vit_hybrid::testing {

/// As NCCL 2.28, a communicator that does not block does its work in a thread, and its state is ncclInProgress
/// meanwhile; ncclCommSplit() returns ncclSuccess for all that, and the child is there only when its parent is through.
struct FakeNccl {
  int polls = 0;                           ///< the thread needs this many looks at the state; negative: it never ends
  bool makes_children = true;              ///< else a split ends well without a child
  ncclResult_t async_error = ncclSuccess;  ///< what every communicator has found
  std::string last_error = "as the fake was told";
  int abort_pipe = -1;  ///< gets a byte for each communicator that is aborted: 'g' in a group, 'a' outside

  std::vector<ncclConfig_t> configs;  ///< of the communicators that were asked for
  int num_destroyed = 0;
  int group_depth = 0;
};

/// The one of this process.
FakeNccl& fake_nccl();

/// Lets the thread of `comm` end, however many looks it would need, and returns when it has.
void end_thread_of(ncclComm_t comm);

}  // namespace vit_hybrid::testing
