// Launcher: the variables by which launchers announce themselves.
#include "parallel/comm/launcher.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

struct Announcement {
  const char* launcher;
  const char* size;
  const char* rank;
  const char* num_here;  // tasks on this node; Slurm's is a number only where there is one node
};

// The first that is set counts. Slurm comes last: its variables are also seen by what an mpirun
// inside of a job step starts. SLURM_NTASKS is no sign, every process of a batch script sees it.
constexpr std::array<Announcement, 5> kAnnouncements = {{
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MVAPICH's mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"a PMI launcher (mpirun of MPICH or Intel MPI, srun --mpi=pmi2)", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
    {"flux run", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", ""},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE"},
}};

std::optional<int> to_int(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  int value = 0;
  const char* const end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

std::string command_hint(const Launch& launch, const std::string& mpi_library) {
  const bool open_mpi = mpi_library.find("Open MPI") != std::string::npos;
  const std::string own_mpirun = str("mpirun -n ", launch.num_ranks, " vit_hybrid ...");
  if (launch.launcher == "srun") {
    return str("start it as 'srun --mpi=", open_mpi ? "pmix" : "pmi2", " -n ", launch.num_ranks,
               " vit_hybrid ...' ('srun --mpi=list' shows what this Slurm offers), or as '", own_mpirun,
               "' with the mpirun of ", open_mpi ? "Open MPI" : "that library");
  }
  return str("start it as '", own_mpirun, "' with the mpirun that belongs to that library",
             open_mpi ? " (often mpirun.openmpi)" : " (often mpirun.mpich or mpiexec.hydra)");
}

}  // namespace

std::optional<Launch> find_launch(const Environment& environment) {
  for (const Announcement& announcement : kAnnouncements) {
    const auto size = to_int(environment(announcement.size));
    if (size) {
      return Launch{announcement.launcher, *size, to_int(environment(announcement.rank)).value_or(0),
                    to_int(environment(announcement.num_here))};
    }
  }
  return std::nullopt;
}

std::optional<Error> singleton_start(const std::optional<Launch>& launch, int world_size,
                                     const std::string& mpi_library) {
  if (!launch || launch->num_ranks <= 1 || world_size > 1) return std::nullopt;
  return Error(ErrorClass::kUsage,
               str(launch->launcher, " started ", launch->num_ranks,
                   " processes, but each is alone in its MPI world: the program uses ", mpi_library,
                   ", which does not understand this launcher"),
               command_hint(*launch, mpi_library));
}

const std::optional<Launch>& own_launch() {
  static const auto* const launch = new std::optional<Launch>(find_launch(own_variable));
  return *launch;
}

std::optional<std::string> own_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace vit_hybrid::comm
