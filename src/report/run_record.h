// What a run was: program, layout, model and machine at its start, memory and time of every rank at its end.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/mpi/mpi_session.h"
#include "src/config/run_config.h"
#include "src/plan/memory_plan.h"
#include "src/report/run_log.h"
#include "src/report/stragglers.h"

namespace vit_hybrid::train {

/// What `--version` prints: version_text(), the versions of MPI, and in a program with CUDA of CUDA, cuDNN and NCCL, as
/// they are loaded, and whether the program has CUDA. Needs neither MPI_Init nor a GPU.
std::string program_text();

/// The first line of metrics.jsonl, {"kind":"start", ...}: time, version, git commit and dirty flag, compiler, library
/// versions, layout, model and its number of parameters, machine with the `node_cores` that the job may use on its
/// node. Of one rank.
Json start_record(const RunConfig& config, const comm::MpiSession& session, int node_cores);

/// {"parameters": ..., ...}: a number of bytes for each class, in the order in which they are written and read.
Json bytes_by_class(const ClassBytes& bytes);

/// What a rank has done, for gather_rank_reports().
struct RankReport {
  int stage = 0;  ///< of the pipeline
  StepSeconds seconds;
  WorkSeconds work{};  ///< of these seconds
  std::vector<SlowSpell> slow;
  MemoryPlan predicted;
  int64_t process_start = 0;  ///< bytes of memory that its process had before it held data or model
};

/// For summary.json: an array with one object a rank: its host and stage, its seconds by phase and what it worked of
/// them, the steps in which others waited for it, its tensor bytes by class (each class's peak, what each held when the
/// total was highest, and that total, beside `predicted`, its plan_memory()), the most memory of its process, what
/// that had at its start, on the host `predicted_process`, the difference as it was predicted, and what the allocator
/// of its tensors held: the GPU's, or host_allocator(). On rank 0, and empty elsewhere. Collective over `world`.
Json gather_rank_reports(const RankReport& report, c10::Device device, const comm::MpiGroup& world);

/// What communication_record() is of: the steps of a training on nodes of so many ranks, and rank 0's place in them.
struct CommunicationOf {
  const ReplicaPlan& replica;
  ModelPlace place;
  std::vector<int> nodes;
  int64_t steps = 0;
};
/// For summary.json: of each axis its ranks, this rank's seconds blocked and, on the host, hidden (in flight while it
/// was not blocked), its operations with their bytes beside what plan_traffic() says of a step; and what all ranks sent
/// from node to node beside the least, where that is known: on the host, where each node has as many ranks and the same
/// part of the model. Collective over `world`.
Json communication_record(const StepConfig& config, const CommunicationOf& run, c10::DeviceType device,
                          const comm::MpiGroup& world);
/// "communication of rank 0: data 1.5 s blocked, 0.8 s hidden; ..." of it; empty where nobody has to do with others or
/// nothing is known of what is hidden.
std::string communication_line(const Json& communication);

/// Of how many ranks at most summary.json and metrics.jsonl have an object each.
inline constexpr size_t kMostRankRows = 64;
/// In the run folder, where the others are.
inline constexpr const char* kRanksFile = "ranks.h5";
/// Gives `record` the rows of gather_rank_reports() as "ranks", or where they are too many "ranks_file".
void put_ranks(Json& record, const Json& ranks);

/// Tables as an HDF5 file, for more ranks than that: of each name a group, of each figure of its rows (objects) a
/// dataset [rows], by the figure's path: "ranks/memory/peak/activations". Integers are int64, other numbers float64,
/// NaN where a row has none; texts are numbers of the lines of the dataset's attribute "texts", and what else there is
/// stands in them as JSON. Error(kCannotCreate), Error(kIo). Not collective.
void write_rank_rows(const std::string& path, const std::vector<std::pair<std::string, Json>>& tables);

}  // namespace vit_hybrid::train
