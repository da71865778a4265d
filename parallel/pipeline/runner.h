// PipelineRunner: walks a schedule over the stages of a rank, which it sees as programs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/schedule.h"
#include "src/base/timer.h"

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

/// Seconds of one run() on the device, without waiting for data and for messages of other stages.
struct RunTimes {
  double forward = 0;
  double backward = 0;
};

/// Drives the stages of this rank and knows no model. Of a micro-batch in flight it keeps the graph between the stage's
/// input and output, never the output.
class PipelineRunner {
 public:
  /// `stages` are those of this rank, in ascending order of their global stage. Both must outlive the runner.
  PipelineRunner(comm::Communicator& pipeline, std::vector<StageProgram*> stages);

  /// Runs all actions of this rank. A schedule with backwards trains, backward starting from `loss_scale` times each
  /// micro-batch's loss; one without evaluates, without a graph. On the rank of the last stage the losses are added to
  /// `loss`, a double on the device, in the order of the micro-batches; undefined: nobody wants them. All messages are
  /// complete at return, on a GPU in the order of its stream. Collective over pipeline.
  void run(const Schedule& schedule, double loss_scale = 1.0, const at::Tensor& loss = {});

  /// Of the last run(); waits until the device has done it.
  const RunTimes& times();

 private:
  class Run;

  comm::Communicator& pipeline_;
  std::vector<StageProgram*> stages_;
  RunTimes times_;
  PhaseClock clock_;
};

}  // namespace vit_hybrid::pipeline
