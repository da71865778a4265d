// StageProgram: what a pipeline stage computes, the only thing the runner knows of a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace vit_hybrid::pipeline {

/// One stage of a rank. Forward runs under autograd when training; the runner drives the graph.
class StageProgram {
 public:
  virtual ~StageProgram() = default;
  /// Called before the forward of each micro-batch: reads, or waits for, what the stage takes from the data. Its time
  /// is not forward's.
  virtual void fetch(int /*micro_batch*/) {}
  /// First stage only: the model's input of a micro-batch, on the device.
  virtual at::Tensor input(int micro_batch) = 0;
  /// Shape and type of the activation that arrives from the previous stage (not called on the first stage).
  virtual std::vector<int64_t> input_shape(int micro_batch) const = 0;
  virtual at::ScalarType activation_type() const = 0;
  /// The activation for the next stage; on the last stage the scalar loss of the micro-batch, already divided by the
  /// global batch size (its backward starts from the loss scale).
  virtual at::Tensor forward(int micro_batch, const at::Tensor& input) = 0;
  /// Called when nothing of the micro-batch is needed any more (after its backward, or its forward in evaluation).
  virtual void release(int micro_batch) = 0;
};

}  // namespace vit_hybrid::pipeline
