// StepWindow: some of the steps of a run, for which something is switched on, from the first of them to the last.
#pragma once

#include <cstdint>
#include <string>

#include "src/config/option_table.h"

namespace vit_hybrid::train {

/// What --trace and --profile-steps have in common: when they begin and end in a run that may go on after an earlier
/// one, be stopped, or be too short.
class StepWindow {
 public:
  virtual ~StepWindow() = default;
  StepWindow(const StepWindow&) = delete;
  StepWindow& operator=(const StepWindow&) = delete;

  /// Sees what is left of the steps in a run that begins after `done` and ends with `last`, both counted from the start
  /// of the run; where all are done already it says that there will be nothing. Error(kUsage) where some are beyond the
  /// end.
  void fit(int64_t done, int64_t last);

  /// Whether turn_before(step) begins or ends it.
  bool turns_before(int64_t step) const;
  /// Begins it before its first step, ends it after its last one. To be called before each step of which turns_before()
  /// is true, when no operation is in flight. Collective over the world.
  void turn_before(int64_t step);
  /// The run ends after `step`: ends it too where it is under way, and a warning where it has not begun. Collective
  /// over the world, when no operation is in flight.
  void end_run(int64_t step);

 protected:
  /// `option`: as it was given, with the steps; `what`: "trace".
  StepWindow(const options::StepRange& steps, std::string option, std::string what);

  /// "trace of steps 10 to 12".
  std::string title(int64_t last) const;
  int64_t first() const { return steps_.first; }

 private:
  virtual void begin() = 0;
  /// `last`: the last step that was done of them.
  virtual void end(int64_t last) = 0;

  options::StepRange steps_;
  std::string option_;
  std::string what_;
  bool is_open_ = false;
  bool is_over_ = false;
};

}  // namespace vit_hybrid::train
