// Steps that communicate as a training does, without a model, of which one rank may leave a collective out, or work
// alone for a while:
//   layout_run DP TP PP STEPS [skip|lonely RANK STEP PLACE]
// PLACE is tensor, data, border, agreement or barrier; with lonely it is the seconds.
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/failure.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "parallel/comm/operation.h"
#include "parallel/mesh/device_mesh.h"

namespace {

using namespace vit_hybrid;

struct Fault {
  std::string kind;
  int rank = -1;
  int64_t step = -1;
  std::string place;
};

class Steps {
 public:
  Steps(const comm::MpiSession& session, const mesh::ParallelDims& dims, Fault fault)
      : session_(session), mesh_(dims, session.world(), at::kCPU), fault_(std::move(fault)) {}

  void run(int64_t step) {
    comm::set_step(step);
    step_ = step;
    if (fault_.kind == "lonely" && is_faulty()) work_alone(std::atof(fault_.place.c_str()));
    {
      const comm::PhaseScope phase("forward");
      pass_on();
      collective("tensor", [&] { mesh_.tensor().all_reduce(activations_, comm::ReduceOp::kSum).wait(); });
    }
    {
      const comm::PhaseScope phase("backward");
      collective("data", [&] { mesh_.data().all_reduce(gradients_, comm::ReduceOp::kSum).wait(); });
    }
    collective("border", [&] { mesh_.host_world().all_reduce(scalars_, comm::ReduceOp::kSum).wait(); });
    collective("agreement", [&] { session_.world().min(step); });
    collective("barrier", [&] { session_.node().barrier(); });
  }

 private:
  bool is_faulty() const { return step_ == fault_.step && session_.world().rank() == fault_.rank; }

  template <class Function>
  void collective(const std::string& place, Function function) {
    usleep(300);
    if (fault_.kind == "skip" && is_faulty() && fault_.place == place) {
      std::puts("skips");  // stalls.py takes the time from here
      std::fflush(stdout);
      return;
    }
    function();
  }

  // From stage to stage.
  void pass_on() {
    comm::Communicator& stages = mesh_.pipeline();
    using Direction = comm::Transfer::Direction;
    if (stages.rank() > 0) stages.exchange({{Direction::kReceive, activations_, stages.rank() - 1}}).wait();
    if (stages.rank() + 1 < stages.size())
      stages.exchange({{Direction::kSend, activations_, stages.rank() + 1}}).wait();
  }

  static void work_alone(double seconds) {
    for (int left = static_cast<int>(seconds * 10); left > 0; --left) {
      usleep(100'000);
      comm::note_work();
    }
  }

  const comm::MpiSession& session_;
  mesh::DeviceMesh mesh_;
  Fault fault_;
  int64_t step_ = 0;
  at::Tensor activations_ = at::zeros({4096}, at::kFloat);
  at::Tensor gradients_ = at::zeros({30000}, at::kFloat);
  at::Tensor scalars_ = at::zeros({4}, at::kDouble);
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto number = [&](size_t i) { return std::atoi(words.at(i).c_str()); };
  try {
    comm::MpiSession session(&argc, &argv);
    const Fault fault = words.size() > 7 ? Fault{words[4], number(5), number(6), words[7]} : Fault();
    {
      Steps steps(session, mesh::ParallelDims(number(0), number(1), number(2)), fault);
      for (int64_t step = 1; step <= number(3); ++step)
        steps.run(step);
    }
    session.finalize();
  } catch (const std::exception& error) {
    comm::report_and_abort(error);
  }
  return 0;
}
