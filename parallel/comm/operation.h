// Operation: the kinds of communication, and where in the run one was started.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vit_hybrid::comm {

enum class Operation { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kExchange, kBarrier };
inline constexpr int kNumOperations = 6;

/// Its name as in the Communicator: "all_reduce".
std::string_view operation_name(Operation operation);

/// Where the run is: step -1 means before the first one; `phase` is a string literal, "" for none.
struct RunPosition {
  int64_t step = -1;
  const char* phase = "";

  /// "step 12, backward", or "" before the first step and outside of phases.
  std::string text() const;
};

/// The position of this process; noted with every operation and error. Safe from any thread.
RunPosition run_position();
void set_step(int64_t step);

/// The main thread has come further: it works where others may wait for it for longer than --timeout. Put it into every
/// loop whose whole may take that long and that asks nobody else (reading, writing, generating, timing). Costs a
/// nanosecond. On other threads it counts only where the main thread waits for them (note_work_of_helpers).
void note_work();

/// While the main thread waits for threads of its own: it comes further if one of them has called note_work() since the
/// last call of this.
void note_work_of_helpers();

/// The run is in `phase` (a string literal, e.g. "backward") while this object lives; phases nest.
class PhaseScope {
 public:
  explicit PhaseScope(const char* phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const char* previous_;
};

/// What is known of one operation: enough to name it in a message.
struct OperationNote {
  std::string axis;       ///< of the communicator, or of the group; "": of all that were launched
  std::string operation;  ///< operation_name(), or what else blocks: "agreement on the arguments"
  int64_t bytes = 0;      ///< size of the larger tensor; of all sent ones for exchange
  uint64_t sequence = 0;  ///< counts the operations of its communicator, from 1; 0 for none
  RunPosition position;
  uint64_t group = 0;  ///< WatchedGroup::id(), 0 where not known
  uint64_t turn = 0;   ///< number among the collectives of the group, from 1; 0: not all of its ranks take part

  /// "all_reduce number 17 on axis 'tensor', 4096 bytes, in step 12, backward".
  std::string text() const;
};

}  // namespace vit_hybrid::comm
