// MpiSession: start and end of MPI.
#include "parallel/comm/mpi_session.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "parallel/comm/agreement.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/mpi_handle.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// A singleton is alone in its world, but not the only one: the one whose launcher calls it rank 0
// speaks.
void refuse_singleton_start(int world_size) {
  const auto launch = find_launch(process_environment());
  const auto error = singleton_start(launch, world_size, mpi_library_version());
  if (error) throw AgreedError(*error, "", launch->rank == 0);
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  world_ = MpiGroup::world();
  refuse_singleton_start(world_->size());
  if (provided < MPI_THREAD_FUNNELED) {
    throw AgreedError(Error(ErrorClass::kUsage, str(mpi_library_version(), " was built without support for threads"),
                            "use one that grants MPI_THREAD_FUNNELED"),
                      "", world_->rank() == 0);
  }
  find_place();
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
  claim_.emplace(*node_, int64_t{sizeof(std::atomic<int>)});
  auto* const claim = reinterpret_cast<std::atomic<int>*>(claim_->region(0));
  if (node_->rank() == 0) new (claim) std::atomic<int>(0);
  node_->barrier();
  set_process_place(place, claim);
}

void MpiSession::finalize() {
  set_process_place(process_place(), nullptr);
  claim_.reset();
  node_.reset();
  world_.reset();
  check_mpi(MPI_Finalize(), "MPI_Finalize");
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
