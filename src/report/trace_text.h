// The slices of a rank in the trace-event format of chrome://tracing and Perfetto: processes are ranks, threads are
// rows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/mesh/device_mesh.h"
#include "src/base/trace.h"

namespace vit_hybrid::train {

/// What a rank has recorded, and where it stands.
struct RankTrace {
  int rank = 0;
  std::string host;
  mesh::ParallelDims dims;
  std::vector<trace::Event> events;       ///< in the order in which they ended
  std::function<int64_t(int64_t)> shown;  ///< from nanoseconds of this rank's clock to those of the file; never falls
};

/// The rank's elements of "traceEvents": its names, its slices by rows, and the ends of its arrows. A line each, with a
/// comma and a line feed behind it. Rows are that of the main thread ("compute"), one an axis of communication, those
/// of data waits, of reading threads and of checkpoints, and on a GPU the first two again for its streams; where slices
/// of a row would cross each other (operations that are in flight at once) it has further lines. Arrows go from the
/// begin of the exchange that sends a message to the end of the one that receives it. Pure.
std::string trace_text(const RankTrace& trace);

}  // namespace vit_hybrid::train
