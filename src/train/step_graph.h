// StepGraph: forward and backward of a micro-batch recorded as two device graphs, so that the host starts two things
// instead of hundreds.
//
// It stands in VitProgram::forward() in the place of stage and loss: runner, reducer and phases do not know of it.
// Inputs, target, loss and the loss's gradient have fixed addresses; which parameters became ready is noted when
// backward is recorded, and told to the reducer after each replay. What a record would freeze rules it out: keys of
// random draws, messages, a reduction that starts inside backward (src/machine/device). Norm with decision, and
// the update, are records of their own (RecordedWork) by a recorder of their own: a new size of micro-batch gives up
// the graphs of the others, and memory that graphs of one recorder share comes back only with the last of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "parallel/tensor/step_context.h"
#include "src/base/device/device_graph.h"

namespace vit_hybrid::train {

/// Micro-batches with the same key do the same work on the device.
struct MicroBatchKind {
  int64_t samples = 0;
  int64_t global_batch = 0;  ///< of which the loss is a part

  auto operator<=>(const MicroBatchKind&) const = default;
};

/// For a whole model on one rank in training without random draws: there the work of a micro-batch is a function of its
/// kind, of its input and target, and of what stands in parameters and gradients. Each backward comes before the next
/// forward.
class StepGraph {
 public:
  /// The scalar loss of a micro-batch, with a graph whose backward adds to the gradients and tells the context's sink.
  using Forward =
      std::function<at::Tensor(const at::Tensor& input, const at::Tensor& target, const tensor::StepContext& context)>;

  explicit StepGraph(std::shared_ptr<DeviceRecorder> recorder);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// What forward(input, target, context) gives and, in its backward, does: the same bits. The first micro-batch of a
  /// kind is computed so; the next one is recorded, and it and all later ones are replayed from copies of `input`,
  /// which requires grad and gets none, and `target`. Where it cannot be recorded, all are computed as they come.
  /// `forward` outlives this object.
  at::Tensor run(const MicroBatchKind& kind, const at::Tensor& input, const at::Tensor& target,
                 const tensor::StepContext& context, const Forward& forward);

 private:
  class Recorded;

  std::shared_ptr<DeviceRecorder> recorder_;                   // null: nothing is recorded any more
  std::map<MicroBatchKind, std::unique_ptr<Recorded>> kinds_;  // null: seen, and not recorded
};

}  // namespace vit_hybrid::train
