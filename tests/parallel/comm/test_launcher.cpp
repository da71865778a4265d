// Launcher: how a process was started, from made-up environments.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "parallel/comm/launcher.h"

using vit_hybrid::ErrorClass;
using namespace vit_hybrid::comm;

namespace {

Environment environment(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

TEST_CASE("launcher: who started how many") {
  CHECK_FALSE(find_launch(environment({})));
  const auto open_mpi = find_launch(environment({{"OMPI_COMM_WORLD_SIZE", "16"}, {"OMPI_COMM_WORLD_RANK", "3"}}));
  REQUIRE(open_mpi);
  CHECK(open_mpi->num_ranks == 16);
  CHECK(open_mpi->rank == 3);
  const auto slurm = find_launch(environment({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "7"}}));
  REQUIRE(slurm);
  CHECK(slurm->launcher == "srun");
  CHECK(slurm->num_ranks == 8);
  CHECK(slurm->rank == 7);
}

TEST_CASE("launcher: the shell of a batch job was not started by srun") {
  CHECK_FALSE(find_launch(environment({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "16"}, {"SLURM_PROCID", "0"}})));
}

TEST_CASE("launcher: an mpirun inside of a job step counts, not the step") {
  const auto launch = find_launch(environment({{"SLURM_STEP_NUM_TASKS", "4"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  REQUIRE(launch);
  CHECK(launch->num_ranks == 1);
  CHECK_FALSE(singleton_start(launch, 1, "Open MPI v4.1.4"));
}

TEST_CASE("launcher: values that are no numbers are no sign") {
  CHECK_FALSE(find_launch(environment({{"PMI_SIZE", "many"}})));
  CHECK_FALSE(find_launch(environment({{"PMI_SIZE", ""}})));
}

TEST_CASE("launcher: a singleton start is refused with the right command") {
  const auto hydra = find_launch(environment({{"PMI_SIZE", "4"}, {"PMI_RANK", "2"}}));
  const auto error = singleton_start(hydra, 1, "Open MPI v4.1.4");
  REQUIRE(error);
  CHECK(error->error_class() == ErrorClass::kUsage);
  CHECK(error->message() ==
        "a PMI launcher (mpirun of MPICH or Intel MPI, srun --mpi=pmi2) started 4 processes, but each is alone in its "
        "MPI world: the program uses Open MPI v4.1.4, which does not understand this launcher");
  CHECK(error->hint() ==
        "start it as 'mpirun -n 4 vit_hybrid ...' with the mpirun that belongs to that library (often "
        "mpirun.openmpi)");
  const auto slurm = singleton_start(Launch{"srun", 16, 0}, 1, "MPICH 4.0.2");
  REQUIRE(slurm);
  CHECK(slurm->hint().find("'srun --mpi=pmi2 -n 16 vit_hybrid ...'") != std::string::npos);
  const auto pmix = singleton_start(Launch{"srun", 16, 0}, 1, "Open MPI v4.1.4");
  REQUIRE(pmix);
  CHECK(pmix->hint().find("'srun --mpi=pmix -n 16 vit_hybrid ...'") != std::string::npos);
}

TEST_CASE("launcher: a world of several, or a launcher of one, is no singleton start") {
  CHECK_FALSE(singleton_start(Launch{"srun", 16, 0}, 16, "Open MPI v4.1.4"));
  CHECK_FALSE(singleton_start(Launch{"srun", 1, 0}, 1, "Open MPI v4.1.4"));
  CHECK_FALSE(singleton_start(std::nullopt, 1, "Open MPI v4.1.4"));
}
