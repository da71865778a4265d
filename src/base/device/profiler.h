// Profilers of GPUs: what they capture (cudaProfilerStart), and the ranges that they show (NVTX).
#pragma once

#include <string>

namespace vit_hybrid {

/// Whether a profiler of GPUs runs this process, by the variables that those of NVIDIA set for it.
bool has_device_profiler();
/// From here, and to here; nothing happens where none is there. What stood in the way, as a sentence; "" for nothing.
/// Only where a GPU is used.
std::string start_device_capture();
std::string stop_device_capture();

// Ranges of NVTX, which profilers such as Nsight Systems show beside the kernels that a program launches.

/// Looks whether a profiler that reads NVTX is attached to this process (NVTX_INJECTION64_PATH names its library, which
/// is loaded here). What keeps one that is attached from seeing ranges, as a sentence's end; "" for nothing.
std::string open_profiler_ranges();
/// Whether one is attached and sees ranges.
bool has_profiler_ranges();

/// A range of the calling thread in the domain "vit_hybrid"; ranges of a thread lie in each other. Only where
/// has_profiler_ranges().
void begin_profiler_range(const std::string& name);
void end_profiler_range();

}  // namespace vit_hybrid
