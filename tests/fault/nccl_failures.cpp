// A program that fails on purpose while NCCL's operations are in flight, on the fake device, in the way its first
// argument names; check_failure.sh looks at how the job ends.
#include <ATen/ops/zeros.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/failure.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/recorded_operations.h"
#include "parallel/comm/watchdog.h"
#include "src/base/error.h"
#include "tests/parallel/comm/nccl/fake_device.h"
#include "tests/parallel/comm/nccl/fake_nccl_sockets.h"
#include "tests/parallel/comm/nccl/fake_recorder.h"
#include "tests/parallel/comm/nccl/fake_socket_mesh.h"

namespace {

using namespace vit_hybrid;

// A step with communicators of all ranks and of pairs of them, in which the first operations have gone well.
struct Run {
  Run(const comm::MpiSession& session, std::function<int(int)> other_color) {
    const comm::MpiGroup& world = session.world();
    data = comm::make_communicator("data", world.duplicate(), at::kCPU);
    testing::fake_nccl_sockets().other_color = std::move(other_color);
    tensor = comm::make_communicator("tensor", world.split(world.rank() / 2), at::kCPU, data.get());
    comm::set_step(12);
    data->all_reduce(x, comm::ReduceOp::kSum).wait();
    tensor->all_reduce(y, comm::ReduceOp::kSum).wait();
  }

  at::Tensor x = at::zeros({1024}, at::kFloat);
  at::Tensor y = at::zeros({1024}, at::kFloat);
  std::unique_ptr<comm::Communicator> data;
  std::unique_ptr<comm::Communicator> tensor;
};

void fail(const std::string& kind, const comm::MpiSession& session) {
  const int rank = session.place().rank;
  const bool is_guilty = rank == session.place().size - 1;
  comm::set_watch_limit(kind.starts_with("stopped") ? 1.5 : 100.0);
  std::function<int(int)> other_color;
  if (kind == "wrong_color") other_color = [](int /*color*/) { return 0; };
  if (kind == "swapped_colors") other_color = [rank](int /*color*/) { return rank % 2; };
  const Run run(session, std::move(other_color));
  const comm::PhaseScope phase("backward");
  if (kind.ends_with("in_replay")) {
    // The guilty rank has replayed once what the others then replay without it.
    testing::FakeRecorder recorder(Unrecordable::kRefused);
    comm::RecordedOperations operations;
    std::unique_ptr<DeviceGraph> graph;
    operations.collect([&] {
      graph = recorder.record([&] {
        run.tensor->all_reduce(run.y, comm::ReduceOp::kSum).wait();
        run.data->all_reduce(run.x, comm::ReduceOp::kSum).wait();
      });
    });
    operations.replay([&] { graph->replay(); });
    if (is_guilty && kind == "lost_in_replay") testing::SocketMesh::cut_all();
    if (is_guilty && kind == "killed_in_replay") raise(SIGKILL);
    if (is_guilty) raise(SIGSTOP);
    operations.replay([&] { graph->replay(); });
  }
  comm::Work first = run.tensor->all_reduce(run.y, comm::ReduceOp::kSum);
  if (is_guilty && kind == "one_rank") {
    const comm::Work joined = run.data->all_reduce(run.x, comm::ReduceOp::kSum);
    const comm::Work joined_by_nobody = run.data->all_reduce(run.x, comm::ReduceOp::kSum);
    throw Error(ErrorClass::kBadData, "1990.h5: sample 7 is not finite");
  }
  if (is_guilty && kind == "lost_machine") testing::SocketMesh::cut_all();
  if (is_guilty && kind == "killed_rank") raise(SIGKILL);
  if (is_guilty && kind != "nothing") raise(SIGSTOP);
  first.wait();
  run.data->all_reduce(run.x, comm::ReduceOp::kSum).wait();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const comm::WatchdogGuard guard;
    const testing::FakeDeviceInUse fake;
    comm::MpiSession session(&argc, &argv);
    fail(argc > 1 ? argv[1] : "nothing", session);
    session.finalize();
  } catch (const std::exception& error) {
    comm::report_and_abort(error);
  }
  std::puts("ended normally");
  return 0;
}
