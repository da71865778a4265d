// Ranges of NVTX, which profilers such as Nsight Systems show beside the kernels that a program launches.
#pragma once

#include <string>

namespace vit_hybrid {

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
