// PipelineRunner: walks a schedule on one pipeline rank: computes its stages and exchanges their messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/stage_program.h"
#include "src/base/phase_clock.h"

namespace vit_hybrid::pipeline {

/// Seconds of one run(). Forward and backward are those of the device, and hold no waiting for data.
struct RunTimes {
  double forward = 0;
  double backward = 0;
  double wait = 0;  ///< of the host for messages
};

/// Drives the stages of this rank and knows no model. Of a micro-batch in flight it keeps the graph between the stage's
/// input and output, never the output.
class PipelineRunner {
 public:
  /// `stages` are those of this rank, in ascending order of their global stage. Both must outlive the runner.
  PipelineRunner(comm::Communicator& pipeline, std::vector<StageProgram*> stages);

  /// Runs all actions of this rank. A schedule with backwards trains, backward starting from `loss_scale` times each
  /// micro-batch's loss; one without evaluates, without a graph. All messages are complete at return, on a GPU in the
  /// order of its stream. Collective over pipeline.
  void run(const Schedule& schedule, double loss_scale = 1.0);

  // Of the last run(); both wait until the device has done it.
  /// The sum of the losses of this replica's micro-batches on the rank of the last stage, 0 on the others.
  double loss() const;
  const RunTimes& times();

 private:
  class Run;

  comm::Communicator& pipeline_;
  std::vector<StageProgram*> stages_;
  at::Tensor losses_;  // by micro-batch, double, on the device; undefined where there are none
  RunTimes times_;
  PhaseClock clock_;
};

}  // namespace vit_hybrid::pipeline
