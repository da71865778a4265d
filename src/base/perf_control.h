// PerfControl: has the `perf record` that runs this process begin and stop, through the FIFOs of perf's --control.
#pragma once

#include <optional>
#include <string>

namespace vit_hybrid {

/// The other end of `perf record --delay=-1 --control=fifo:COMMANDS,ANSWERS`.
class PerfControl {
 public:
  /// That which PERF_RECORD_CONTROL names, in the words of perf's option ("fifo:COMMANDS,ANSWERS"); nothing where the
  /// variable is not set. Error(kUsage) where it says something else.
  static std::optional<PerfControl> of_environment();

  /// Has perf begin to sample. Returns when it has answered, or has not for `patience` seconds. What stood in the way,
  /// as a sentence; "" for nothing.
  std::string enable(double patience);
  /// Has it stop, likewise; one that did not answer before is not waited for.
  std::string disable(double patience);

 private:
  PerfControl(std::string commands, std::string answers);
  std::string ask(const std::string& command, double patience);

  std::string commands_;
  std::string answers_;
  bool answers_in_time_ = true;
};

}  // namespace vit_hybrid
