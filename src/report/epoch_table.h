// epoch_table(): the figures of a run by epoch, for its end.
#pragma once

#include <string>
#include <vector>

#include "src/report/run_log.h"

namespace vit_hybrid::train {

/// Training loss and samples/s of each epoch; with validations theirs too: the loss, and RMSE beside persistence
/// (means over the channels) or top-1 and top-5. Pure.
std::vector<std::string> epoch_table(const std::vector<EpochRecord>& epochs,
                                     const std::vector<ValidationRecord>& validations);

}  // namespace vit_hybrid::train
