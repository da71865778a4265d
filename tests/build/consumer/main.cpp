// Uses the installed communicators: sums a tensor over the ranks of the job.
#include <ATen/ops/ones.h>
#include <c10/core/Device.h>

#include <cstdio>

#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/version.h"

int main(int argc, char** argv) {
  using namespace vit_hybrid;
  comm::MpiSession session(&argc, &argv);
  double sum = 0;
  {
    const auto world = comm::make_communicator("world", session.world().duplicate(), c10::Device(at::kCPU));
    const at::Tensor tensor = at::ones({4});
    world->all_reduce(tensor, comm::ReduceOp::kSum).wait();
    sum = tensor[0].item<double>();
    if (world->rank() == 0) {
      std::printf("vit_hybrid %s: sum over %d ranks is %g\n", project_version().c_str(), world->size(), sum);
    }
  }
  session.finalize();
  return sum >= 1 ? 0 : 1;
}
