// Launcher: what the environment tells about how this process was started; pure.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "src/base/error.h"

namespace vit_hybrid::comm {

/// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// A launcher that says it started `num_ranks` processes, this one being `rank`.
struct Launch {
  std::string launcher;  ///< "Open MPI's mpirun", "srun", ...
  int num_ranks;
  int rank;
  std::optional<int> num_here = std::nullopt;  ///< of them on this node, where the launcher says so
};

/// The launch that the environment describes; the innermost, if one launcher was started by another.
std::optional<Launch> find_launch(const Environment& environment);

/// The error of a singleton start, if `launch` started several ranks but the MPI library, with its
/// version text, sees a world of one: then it is not the library of that launcher.
std::optional<Error> singleton_start(const std::optional<Launch>& launch, int world_size,
                                     const std::string& mpi_library);

/// The launch of this process. It is read once, by the first caller, which comes before there are threads: MPI_Init
/// changes the environment, and whoever reads that meanwhile reads memory that is freed.
const std::optional<Launch>& own_launch();

/// A variable of this process' environment; to be read before MPI_Init, or after it by the main thread.
std::optional<std::string> own_variable(const char* name);

}  // namespace vit_hybrid::comm
