// StepContext: what a layer needs beyond its input, and GradientSink, whom it tells that a gradient was added to.
#pragma once

#include <cstdint>
#include <vector>

namespace vit_hybrid::tensor {

/// Told by backward code after the contribution of one micro-batch to one parameter's gradient was added.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// `parameter` is the index among the rank's specs.
  virtual void ready(int parameter, int micro_batch) = 0;
};

enum class Mode { kTraining, kEvaluation };

/// One per micro-batch; lives until that micro-batch's backward has returned (layers keep a pointer to it).
struct StepContext {
  uint64_t seed = 0;
  int64_t step = 0;
  int micro_batch = 0;
  std::vector<int64_t> samples;  ///< global numbers of the micro-batch's samples (epoch position independent keys)
  Mode mode = Mode::kEvaluation;
  GradientSink* sink = nullptr;  ///< may be null (nobody listens)

  bool training() const { return mode == Mode::kTraining; }
  void ready(int parameter) const {
    if (sink != nullptr) {
      sink->ready(parameter, micro_batch);
    }
  }
};

}  // namespace vit_hybrid::tensor
