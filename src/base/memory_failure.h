// The sentence that says what an allocation wanted that failed, and what was held.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/memory_tracker.h"

namespace vit_hybrid {

/// "out of memory: 1.50 GiB were asked for activations on cuda:0, which has 79.1 GiB; held are ...", by class, the
/// largest first. `device_bytes` is the memory of the device; 0 where it is not known. Pure.
std::string memory_failure_text(const MemoryFailure& failure, int64_t device_bytes);

}  // namespace vit_hybrid
