// StepContext: what a layer needs beyond its input, and GradientSink, whom it tells that a gradient was added to.
#pragma once

#include "src/base/random.h"

namespace vit_hybrid::tensor {

/// Told by backward code after the contribution of one micro-batch to one parameter's gradient was added.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// `parameter` is the index among the rank's specs.
  virtual void ready(int parameter, int micro_batch) = 0;
};

/// One per micro-batch; lives until that micro-batch's backward has returned (layers keep a pointer to it).
struct StepContext : SampleContext {
  int micro_batch = 0;
  GradientSink* sink = nullptr;  ///< may be null (nobody listens)

  void ready(int parameter) const {
    if (sink != nullptr) {
      sink->ready(parameter, micro_batch);
    }
  }
};

}  // namespace vit_hybrid::tensor
