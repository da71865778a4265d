// A fake of the functions of NCCL that connect and end communicators; what a test sets and sees.
#pragma once

#include <nccl.h>

#include <vector>

namespace vit_hybrid::testing {

struct FakeNccl {
  int polls = 0;                           ///< a connection takes this many looks; negative: it never comes
  ncclResult_t async_error = ncclSuccess;  ///< what every communicator has found
  int abort_pipe = -1;                     ///< gets one byte for each communicator that is aborted

  std::vector<ncclConfig_t> configs;  ///< of the communicators that were asked for
  int num_destroyed = 0;
  int group_depth = 0;
};

/// The one of this process.
FakeNccl& fake_nccl();

}  // namespace vit_hybrid::testing
