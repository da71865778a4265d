// Failure: how a process ends the whole job with one message and the right exit code.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::comm {

/// Where a process stands in the job.
struct ProcessPlace {
  int rank = 0;
  int size = 1;
  int node = 0;  ///< number of its node, in the order of the nodes' lowest ranks
  int num_nodes = 1;
  int node_rank = 0;
  int node_size = 1;
  std::string host;

  /// "rank 3 of 16 on n1", or "" for a job of one process.
  std::string text() const;
};

/// Place of this process; that of a job of one until MpiSession has set it.
const ProcessPlace& process_place();

/// Any exception as an Error: an Error itself; class kUsage for memory that was not there, with what the tracker knows
/// of it, and for a thread that could not be started; else class kInternal, LibTorch's without its stack.
Error as_error(const std::exception& exception);

/// Memory that was not there and was asked for by a library, without ATen's allocators: class kUsage, with what a user
/// can do. `text`: what the library says.
Error memory_error(const std::string& text);

/// What a rank finds when another one is gone, which has told why, or whose launcher will. So this is told only where
/// nothing has ended the job for a while.
class LostPeerError : public Error {
 public:
  using Error::Error;
};

/// Whether an error is a process' own, or a LostPeerError.
enum class Cause { kOwn, kLostPeer };

/// What a user can do about memory that was not there; the hint of as_error() and memory_error().
using MemoryAdvice = std::function<std::string(const MemoryFailure&)>;
/// From the start of the run on, when its configuration is known; of one thread.
void set_memory_advice(MemoryAdvice advice);

/// Runs before the job is aborted, once the message is out, and is given two seconds: what would keep this process from
/// ending. From any thread.
void set_before_abort(std::function<void()> action);

/// The line that report_and_abort() prints: "vit_hybrid: MESSAGE [rank 3 of 16 on n1, step 12,
/// backward]; HINT". A message of several lines has the rest on a line of its own.
std::string failure_text(const std::exception& exception);

/// Ends the job: prints the message unless another rank has claimed to, and aborts all ranks with
/// the exit code of the error's class. From the main thread, in a catch of main().
///
/// Who speaks: an AgreedError names its speaker. Otherwise the ranks of a node race for one atomic
/// on the node's board, and node k gives the nodes before it min(k/10 s, 3 s) to end the job, and
/// then asks them (set_job_voice); a process that has lost a peer gives all others 3 s first. So
/// there is exactly one message from a node, and one from the job unless nodes that cannot talk
/// fail independently within the time an abort needs. Who may speak and is stopped before it has, is
/// replaced after 3 s. Nothing here waits for progress in MPI, and any thread may do it. A process
/// that is alone ends MPI before itself, if the main thread fails, and is given two seconds for it.
[[noreturn]] void report_and_abort(const std::exception& exception);

/// The same for a text that is ready and an exit code; for the watchdog, from any thread.
[[noreturn]] void report_and_abort(const std::string& line, int exit_code, Cause cause = Cause::kOwn);

/// For MpiSession: where this process is.
void set_process_place(ProcessPlace place);

/// How one process speaks for all nodes; both are bounded in time. Null: there are no others, or they cannot be asked.
struct JobVoice {
  std::function<bool()> claim;    ///< asks them whether it may, once it may for its node
  std::function<void()> silence;  ///< tells them, before it ends the job, that the message is out
};
void set_job_voice(JobVoice voice);

}  // namespace vit_hybrid::comm
