// What the ranks tell each other between two steps.
#pragma once

#include <optional>

#include "parallel/comm/communicator.h"

namespace vit_hybrid::train {

/// Of one rank.
struct BorderReport {
  double loss = 0.0;         ///< its part of the global loss; the sum over ranks is that loss
  double data_wait = 0.0;    ///< seconds of the step
  bool time_is_up = false;   ///< there is no time for another step
  bool has_written = false;  ///< its part of the checkpoint under way
  int signal = 0;            ///< that asked it to stop; 0: none
};

/// Of all, the same on every rank.
struct BorderAgreement {
  double loss = 0.0;
  double mean_data_wait = 0.0;
  double most_data_wait = 0.0;
  bool all_have_written = false;
  int signal = 0;           ///< the largest that any rank has seen; 0: none
  bool time_is_up = false;  ///< for any rank
};

/// Two small messages. Collective over `host_world`.
BorderAgreement agree_at_border(const BorderReport& own, comm::Communicator& host_world);

}  // namespace vit_hybrid::train
