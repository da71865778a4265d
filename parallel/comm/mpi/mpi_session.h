// MpiSession: the life of MPI in this process, from MPI_Init_thread to MPI_Finalize.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "parallel/comm/failure.h"
#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

class WatchLink;
class Watchdog;

/// The word of a command line, with a value behind '=' or without, with which MPI is started for a MessageThread too.
inline constexpr const char* kMessageThreadOption = "--communication-thread";

/// Starts the watchdog and MPI (MPI_THREAD_FUNNELED: only the thread that made it may communicate; with
/// kMessageThreadOption MPI_THREAD_SERIALIZED), and finds out where this process stands. One per process, in main(),
/// before anything that may wait for another process. It ends MPI by finalize() alone: its destructor leaves MPI
/// running, so that an exception reaches report_and_abort() before anything waits for the other ranks.
class MpiSession {
 public:
  /// Throws Error(kUsage) on a singleton start (see launcher.h). Collective over all processes.
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// The normal end: MPI_Finalize. Groups and communicators must be gone. Collective over all
  /// processes.
  void finalize();

  const MpiGroup& world() const { return *world_; }
  /// The processes of this node.
  const MpiGroup& node() const { return *node_; }
  const ProcessPlace& place() const { return process_place(); }
  /// Whether there may be a MessageThread.
  bool serializes() const { return serializes_; }

 private:
  void find_place();

  bool serializes_;
  std::unique_ptr<Watchdog> watchdog_;
  std::shared_ptr<WatchLink> link_;  // null: there is one node
  std::optional<MpiGroup> world_;
  std::optional<MpiGroup> node_;
};

/// The MPI library's name and version in a few words: "Open MPI v4.1.4", "MPICH 4.0.2".
std::string mpi_library_version();

}  // namespace vit_hybrid::comm
