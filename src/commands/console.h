// Console: what commands say before, or without, MPI: once a job, whatever number of processes was started.
#pragma once

#include <string>
#include <vector>

#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/config/settings.h"

namespace vit_hybrid::commands {

/// True in the process that the launcher calls rank 0, and in one that no launcher started.
bool is_first_process();

/// Number of processes that the launcher says it started; 0 without a launcher.
int num_launched();

/// Prints on standard output, in the first process only.
void print_once(const std::string& text);

/// Throws an error that every rank has (it follows from what all have read): the first process prints it, without a
/// place.
[[noreturn]] void throw_on_all_ranks(const Error& error);

/// Calls `function`; an error that it throws on every rank alike is thrown as by throw_on_all_ranks().
template <class Function>
auto same_error_on_all_ranks(Function&& function) {
  try {
    return function();
  } catch (const comm::AgreedError&) {
    throw;
  } catch (const Error& error) {
    throw_on_all_ranks(error);
  }
}

/// Whether "--name" (or "-h" for help) is among the words.
bool asks_for(const std::vector<std::string>& words, const std::string& name);

/// Warns of the remarks on a tool's command line (options given twice), once a job.
void warn_of_remarks(const options::Settings& settings);

/// Refuses a job whose processes were started with different words, VIT_HYBRID_* variables or builds. Collective over
/// the world.
void agree_on_start(const comm::MpiGroup& world, const std::vector<std::string>& words);

/// Reads a file on rank 0 for all ranks. Collective over the world.
std::string read_for_all(const comm::MpiGroup& world, const std::string& path);

}  // namespace vit_hybrid::commands
