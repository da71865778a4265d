// MpiSession: start and end of MPI.
#include "parallel/comm/mpi/mpi_session.h"

#include <mpi.h>
#include <sys/prctl.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "parallel/comm/agreement.h"
#include "parallel/comm/host_task.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/watch_link.h"
#include "parallel/comm/watchdog.h"
#include "src/base/host.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

// A singleton is alone in its world, but not the only one: the one whose launcher calls it rank 0
// speaks.
void refuse_singleton_start(int world_size) {
  const auto& launch = own_launch();
  const auto error = singleton_start(launch, world_size, mpi_library_version());
  if (!error) return;
  set_process_place({});  // there is nobody else to be ended
  throw AgreedError(*error, "", launch->rank == 0);
}

// Before MPI tells, the launcher does; the watchdogs of the node meet on their board.
void start_place() {
  const auto& launch = own_launch();
  ProcessPlace place;
  place.host = host_name();
  if (launch) {
    place.rank = launch->rank;
    place.size = std::max(1, launch->num_ranks);
  }
  set_process_place(place);
  join_board(launch);
}

// While MPI starts and ends, Open MPI sleeps 100 us between looks whether the others have come. Where many ranks share
// few cores, they take all of the cores' time from those for whom they wait, and from MPI's daemons: so they may sleep
// for some milliseconds, which a start has two or three times.
class LazyTimers {
 public:
  LazyTimers() { prctl(PR_SET_TIMERSLACK, 5'000'000UL); }
  ~LazyTimers() { prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_)); }
  LazyTimers(const LazyTimers&) = delete;
  LazyTimers& operator=(const LazyTimers&) = delete;

 private:
  int before_ = prctl(PR_GET_TIMERSLACK);
};

// Whoever has come through MPI_Finalize stays as a witness of those of its node that have not.
void see_others_through() {
  const OperationNote note = launch_note("end of MPI_Finalize", kEndTurn);
  BlockedScope blocked(note);
  for (Waiting waiting; !board_has_come_to(kEndTurn); waiting.pause())
    blocked.look();
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  start_place();
  watchdog_ = std::make_unique<Watchdog>();
  const std::string option = kMessageThreadOption;
  serializes_ = std::any_of(*argv, *argv + *argc,
                            [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
  const int wanted = serializes_ ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED;
  int provided = MPI_THREAD_SINGLE;
  {
    const OperationNote note = launch_note("MPI_Init", kInitTurn);
    const BlockedScope blocked(note);
    const LazyTimers lazy;
    check_mpi(MPI_Init_thread(argc, argv, wanted, &provided), "MPI_Init_thread");
  }
  world_ = MpiGroup::world();
  refuse_singleton_start(world_->size());
  if (provided < wanted) {
    const std::string level = wanted == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED" : "MPI_THREAD_FUNNELED";
    throw AgreedError(Error(ErrorClass::kUsage, str(mpi_library_version(), " does not grant ", level),
                            wanted == MPI_THREAD_SERIALIZED ? str("leave out ", kMessageThreadOption)
                                                            : "use one that was built with support for threads"),
                      "", world_->rank() == 0);
  }
  find_place();
  agree(*world_, problem_of_environment());
}

void MpiSession::find_place() {
  node_ = world_->split_by_node();
  ProcessPlace place;
  place.rank = world_->rank();
  place.size = world_->size();
  place.node_rank = node_->rank();
  place.node_size = node_->size();
  place.host = host_name();
  // Nodes are numbered by their lowest ranks.
  const auto node_ranks = world_->all_gather(place.node_rank);
  place.num_nodes = static_cast<int>(std::count(node_ranks.begin(), node_ranks.end(), 0));
  int64_t node = std::count(node_ranks.begin(), node_ranks.begin() + place.rank, 0);
  node_->broadcast(&node, sizeof node, 0);
  place.node = static_cast<int>(node);
  meet_on_board(*node_, place.rank);
  set_process_place(place);
  if (place.num_nodes == 1) return;
  link_ = std::make_shared<WatchLink>(*world_, place.node, [this] { return watchdog_->standings(); });
  watchdog_->set_ask_job([link = link_](std::vector<Standing> own) { return link->ask(std::move(own)); });
  set_job_voice({[link = link_] { return link->claim(); }, [link = link_] { link->silence_others(); }});
}

// Where the process fails, the link stays: to ask who speaks, and to answer those who do.
MpiSession::~MpiSession() {
  if (link_ == nullptr) return;
  watchdog_->set_ask_job(nullptr);
  link_->forget_standings();
  if (std::uncaught_exceptions() == 0) set_job_voice({});
}

void MpiSession::finalize() {
  node_.reset();
  world_.reset();
  {
    const OperationNote note = launch_note("MPI_Finalize", kFinalizeTurn);
    const BlockedScope blocked(note);
    const LazyTimers lazy;
    check_mpi(MPI_Finalize(), "MPI_Finalize");
  }
  see_others_through();
  leave_board();
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<size_t>(length));
  version = version.substr(0, std::min(version.find(','), version.find('\n')));
  // MPICH writes "MPICH Version:<tab>4.0.2".
  const std::string mpich = " Version:\t";
  const size_t at = version.find(mpich);
  if (at != std::string::npos) version.replace(at, mpich.size(), " ");
  return version;
}

}  // namespace vit_hybrid::comm
