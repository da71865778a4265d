// What profilers of GPUs capture, where they wait to be told (nsys --capture-range=cudaProfilerApi).
#pragma once

#include <string>

namespace vit_hybrid {

/// Whether a profiler of GPUs runs this process, by the variables that those of NVIDIA set for it.
bool has_device_profiler();
/// From here, and to here; nothing happens where none is there. What stood in the way, as a sentence; "" for nothing.
/// Only where a GPU is used.
std::string start_device_capture();
std::string stop_device_capture();

}  // namespace vit_hybrid
