// Memory that was not there: which errors tell of that, and the sentence that says what was wanted and what was held.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "src/base/memory_tracker.h"

namespace vit_hybrid {

/// Whether a library's words are of memory that it did not get, on the host or on a device.
bool tells_of_memory(const std::string& text);
/// Whether an exception is of that: by its type, or by its words.
bool is_missing_memory(const std::exception& exception);

/// "out of memory: 1.50 GiB were asked for activations on cuda:0, which has 79.1 GiB; held are ...", by class, the
/// largest first. `device_bytes` is the memory of the device; 0 where it is not known. Pure.
std::string memory_failure_text(const MemoryFailure& failure, int64_t device_bytes);

}  // namespace vit_hybrid
