// PipelineRunner: walks a schedule on one pipeline rank: computes its stages and exchanges their messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/stage_program.h"

namespace vit_hybrid::pipeline {

/// Seconds of the host in one run(): what of it was forward, backward, and waiting for messages.
struct RunTimes {
  double forward = 0;
  double backward = 0;
  double wait = 0;
};

/// Drives the stages of this rank and knows no model. Of a micro-batch in flight it keeps the graph between the stage's
/// input and output, never the output.
class PipelineRunner {
 public:
  /// `stages` are those of this rank, in ascending order of their global stage. Both must outlive the runner.
  PipelineRunner(comm::Communicator& pipeline, std::vector<StageProgram*> stages);

  /// Runs all actions of this rank. A schedule with backwards trains; one without evaluates, without a graph. Returns
  /// the sum of the losses of this replica's micro-batches on the rank of the last stage, 0 on the others. All messages
  /// are complete at return. Collective over pipeline.
  double run(const Schedule& schedule);

  /// Of the last run().
  const RunTimes& times() const { return times_; }

 private:
  class Run;

  comm::Communicator& pipeline_;
  std::vector<StageProgram*> stages_;
  RunTimes times_;
};

}  // namespace vit_hybrid::pipeline
