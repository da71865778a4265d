// All ways to read rows.
#pragma once

#include "data/reading/posix_file.h"

namespace vit_hybrid::testing {

constexpr data::IoMode kIoModes[] = {data::IoMode::kAuto, data::IoMode::kDirect, data::IoMode::kIndependent,
                                     data::IoMode::kCollective};

}  // namespace vit_hybrid::testing
