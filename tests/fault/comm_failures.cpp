// A program that fails on purpose, in the way its first argument names; check_failure.sh looks at how the job ends.
#include <ATen/ops/zeros.h>
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "parallel/comm/agreement.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/watchdog.h"
#include "src/base/error.h"

// In place of the C library's: MPI_Init changes the environment, and a thread that reads it meanwhile may read memory
// that has been freed. So no thread of ours may ask for a launcher's variable or for one of the program's.
extern "C" char* getenv(const char* name) noexcept {
  const std::string_view text(name);
  const bool is_own = text.starts_with("VIT_HYBRID_") || text.starts_with("SLURM_") ||
                      text.starts_with("OMPI_COMM_WORLD_SIZE") || text.starts_with("PMI_SIZE");
  if (is_own && gettid() != getpid()) {
    std::fprintf(stderr, "a thread asks for %s\n", name);
    _exit(99);
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, text.size()) == 0 && (*entry)[text.size()] == '=') return *entry + text.size() + 1;
  }
  return nullptr;
}

namespace {

using namespace vit_hybrid;

constexpr unsigned kLongerThanTheTest = 60;
std::string g_kind;  // of the failure

}  // namespace

// As MPI's, but of one kind of failure rank 2 does not come back from it.
extern "C" int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void* base,
                                       MPI_Win* window) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (g_kind == "timeout_building" && rank == 2) sleep(kLongerThanTheTest);
  return PMPI_Win_allocate_shared(size, unit, info, comm, base, window);
}

namespace {

// What runs before a failure in the middle of a run: a step with communicators on two axes.
struct Run {
  explicit Run(const comm::MpiSession& session, comm::HostPath path = comm::HostPath::kAuto)
      : rank(session.place().rank) {
    comm::TransportOptions options;
    options.host_path = path;
    data = comm::make_communicator("data", session.world().duplicate(), at::kCPU, nullptr, options);
    tensor = comm::make_communicator("tensor", session.world().duplicate(), at::kCPU, nullptr, options);
    comm::set_step(12);
    data->all_reduce(x, comm::ReduceOp::kSum).wait();
  }
  // Rank 0 works (or hangs) instead of taking part; the others wait for it.
  void all_reduce_without_rank_0() {
    const comm::PhaseScope phase("backward");
    tensor->all_reduce(x, comm::ReduceOp::kSum).wait();
    if (rank == 0) sleep(kLongerThanTheTest);
    tensor->all_reduce(x, comm::ReduceOp::kSum).wait();
  }

  int rank;
  at::Tensor x = at::zeros({1024}, at::kFloat);
  std::unique_ptr<comm::Communicator> data;
  std::unique_ptr<comm::Communicator> tensor;
};

void fail(const std::string& kind, const comm::MpiSession& session) {
  const int rank = session.place().rank;
  const int last = session.place().size - 1;
  if (kind == "one_rank") {
    Run run(session);
    if (rank == last) throw Error(ErrorClass::kBadData, "1990.h5: sample 7 is not finite", "check the file");
    run.all_reduce_without_rank_0();
  } else if (kind == "all_ranks") {
    Run run(session);
    throw Error(ErrorClass::kCannotCreate, "disk full on rank " + std::to_string(rank));
  } else if (kind == "agreed") {
    comm::agreed(session.world(), [&] {
      if (rank >= last - 1) throw Error(ErrorClass::kMissingInput, "no file a.h5\nno file b.h5", "give --train-data");
    });
  } else if (kind == "lost_agreed") {
    // The one rank that is to print what all of them throw is stopped before it does.
    try {
      comm::agreed_on_rank_0(session.world(), [] { throw Error(ErrorClass::kMissingInput, "no file a.h5"); });
    } catch (const comm::AgreedError& error) {
      if (error.speaks()) raise(SIGSTOP);
      throw;
    }
  } else if (kind == "unwinding") {
    // Work in flight, communicators and an exception that is none of ours.
    Run run(session);
    comm::Work work = run.data->all_reduce(run.x, comm::ReduceOp::kSum);
    if (rank == last) throw std::out_of_range("none of ours");
    work.wait();
    run.all_reduce_without_rank_0();
  } else if (kind == "timeout_shared" || kind == "timeout_messages") {
    comm::set_watch_limit(1.5);
    Run(session, kind == "timeout_shared" ? comm::HostPath::kSharedMemory : comm::HostPath::kMessages)
        .all_reduce_without_rank_0();
  } else if (kind == "chain") {
    // 0 and 2 are the first of two groups, 2 and 3 as well as 0 and 1 the second: who waits for whom is a chain.
    comm::set_watch_limit(1.5);
    Run run(session);
    const comm::MpiGroup pair = session.world().split(rank / 2);
    const comm::MpiGroup firsts = session.world().split(rank % 2);
    if (rank == 0) sleep(kLongerThanTheTest);
    usleep(rank == 1 ? 1'000'000 : rank == 2 ? 500'000 : 0);  // who is further from the root has waited longer
    if (rank == 2) firsts.barrier();
    pair.barrier();
  } else if (kind == "stopped") {
    comm::set_watch_limit(1.5);
    Run run(session);
    if (rank == 2) raise(SIGSTOP);
    run.tensor->all_reduce(run.x, comm::ReduceOp::kSum).wait();
  } else if (kind == "lost_speaker") {
    // Rank 2 is stopped when it is the one that may speak, and has not yet.
    comm::set_watch_limit(1.5);
    Run run(session);
    if (rank == 2 && comm::claim_board(rank)) raise(SIGSTOP);
    run.tensor->all_reduce(run.x, comm::ReduceOp::kSum).wait();
  } else if (kind == "skipped") {
    // Rank 1 leaves out a collective of the other axis.
    comm::set_watch_limit(1.5);
    Run run(session);
    for (int i = 0; i < 3; ++i) {
      if (rank != 1 || i != 1) run.data->all_reduce(run.x, comm::ReduceOp::kSum).wait();
      run.tensor->all_reduce(run.x, comm::ReduceOp::kSum).wait();
    }
  } else if (kind == "stuck_probe") {
    comm::set_watch_limit(1.0);
    Run run(session);
    const comm::DeviceOperation operation({"data", "all_reduce", 4096, 7, comm::run_position()}, [] {
      sleep(kLongerThanTheTest);
      return comm::DeviceStatus{};
    });
    run.all_reduce_without_rank_0();
  } else if (kind == "lonely_work") {
    // Three limits, in pieces of a fifth.
    comm::set_watch_limit(1.0);
    Run run(session);
    for (int i = 0; i < 15 && rank == 2; ++i) {
      usleep(200'000);
      comm::note_work();
    }
    run.tensor->all_reduce(run.x, comm::ReduceOp::kSum).wait();
    session.world().barrier();
  } else if (kind == "timeout_freeing" || kind == "timeout_building") {
    // In a collective of MPI itself: all are past the barrier before it.
    comm::set_watch_limit(1.0);
    const Run run(session, comm::HostPath::kSharedMemory);
    if (rank == 2) sleep(kLongerThanTheTest);
  } else if (kind == "timeout_control") {
    comm::set_watch_limit(1.0);
    if (rank == 0) sleep(kLongerThanTheTest);
    session.world().barrier();
  } else if (kind == "device") {
    // As NCCL's watchdog probes find it, and as its communicators are aborted.
    comm::set_watch_limit(100.0);
    Run run(session);
    comm::set_before_abort([] { std::fputs("communicators aborted\n", stderr); });
    const comm::OperationNote note{"data", "all_reduce", 4096, 7, comm::run_position()};
    using Kind = comm::DeviceStatus::Kind;
    const comm::DeviceOperation operation(note, [rank] {
      return rank == 1 ? comm::DeviceStatus{Kind::kFailed, "remote process exited"}
                       : comm::DeviceStatus{Kind::kRunning, {}};
    });
    run.all_reduce_without_rank_0();
  } else if (kind == "lost_peer" || kind == "lost_peer_on_device") {
    // Rank 1 finds that the last one is gone before that one has told why, as in a job of several nodes.
    comm::set_watch_limit(5.0);
    Run run(session);
    using Kind = comm::DeviceStatus::Kind;
    const bool on_device = kind == "lost_peer_on_device";
    const comm::DeviceOperation operation({"data", "all_reduce", 4096, 7, comm::run_position()}, [=] {
      return rank == 1 && on_device ? comm::DeviceStatus{Kind::kFailed, "remote process exited", comm::Cause::kLostPeer}
                                    : comm::DeviceStatus{Kind::kRunning, {}};
    });
    if (rank == 1 && !on_device) throw comm::LostPeerError(ErrorClass::kIo, "remote process exited");
    if (rank == last) sleep(1);
    if (rank == last) throw Error(ErrorClass::kBadData, "1990.h5: sample 7 is not finite");
    run.all_reduce_without_rank_0();
  } else if (kind == "only_lost_peer") {
    Run run(session);
    if (rank == 1) throw comm::LostPeerError(ErrorClass::kIo, "remote process exited", "look at the network");
    run.all_reduce_without_rank_0();
  } else if (kind == "hanging_abort") {
    Run run(session);
    comm::set_before_abort([] { sleep(kLongerThanTheTest); });
    if (rank == last) throw Error(ErrorClass::kBadData, "1990.h5: sample 7 is not finite");
    run.all_reduce_without_rank_0();
  } else if (kind != "nothing" && kind != "before_init" && !kind.ends_with("_finalize")) {
    throw Error(ErrorClass::kUsage, "unknown kind " + kind);
  }
}

}  // namespace

// In the place of MPI's own: one rank does not come to it.
extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  if (g_kind == "before_init" && comm::process_place().rank == 2) sleep(kLongerThanTheTest);
  return PMPI_Init_thread(argc, argv, required, provided);
}

extern "C" int MPI_Finalize() {
  const bool is_late = comm::process_place().rank == 2;
  if (g_kind.ends_with("_finalize")) comm::set_watch_limit(1.5);
  if (g_kind == "before_finalize" && is_late) sleep(kLongerThanTheTest);
  const int result = PMPI_Finalize();
  if (g_kind == "behind_finalize" && is_late) raise(SIGSTOP);
  return result;
}

int main(int argc, char** argv) {
  g_kind = argc > 1 ? argv[1] : "nothing";
  try {
    if (g_kind == "before_init") comm::set_watch_limit(4.0);  // others may be slow to come to their start
    const comm::WatchdogGuard guard;
    comm::MpiSession session(&argc, &argv);
    fail(g_kind, session);
    session.finalize();
  } catch (const std::exception& error) {
    comm::report_and_abort(error);
  }
  std::puts("ended normally");
  return 0;
}
