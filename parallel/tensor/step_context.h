// StepContext: what a layer needs beyond its input, and GradientSink, whom it tells that a gradient was added to.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/partition.h"
#include "src/base/random.h"

namespace vit_hybrid::tensor {

/// Told by backward code after the contribution of one micro-batch, or of a part of it, to one parameter's gradient was
/// added.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// `parameter` is the index among the rank's specs.
  virtual void ready(int parameter, int micro_batch) = 0;
};

/// One per micro-batch, or per part of one; lives until that micro-batch's backward has returned (layers keep a pointer
/// to it).
struct StepContext : SampleContext {
  int micro_batch = 0;
  GradientSink* sink = nullptr;  ///< may be null (nobody listens)

  void ready(int parameter) const {
    if (sink != nullptr) {
      sink->ready(parameter, micro_batch);
    }
  }
};

/// The parts along the batch that a micro-batch is cut into where `most` are wanted: none is empty, but the only one of
/// no samples.
Partition parts_of(int64_t num_samples, int most);
/// The contexts of these parts, each of which names its samples.
std::vector<StepContext> cut(const StepContext& micro_batch, int most);

}  // namespace vit_hybrid::tensor
