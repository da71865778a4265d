// Command: what all commands are, how one is started, and what it prints.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/error.h"
#include "src/config/option_table.h"
#include "src/config/settings.h"

namespace vit_hybrid::commands {

/// True in the process that the launcher calls rank 0, and in one that no launcher started.
bool is_first_process();

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

/// Throws the problems as one error of the class, as throw_on_all_ranks() does; returns where there are none.
void refuse(const std::vector<std::string>& problems, ErrorClass error_class = ErrorClass::kUsage);

/// Whether "--name" (or "-h" for help) is among the words.
bool asks_for(const std::vector<std::string>& words, const std::string& name);

/// Fills the variables of the table from words that are options and their values, and warns of the remarks (options
/// given twice), once a job. What is wrong with values becomes problems of `settings`, which is one of the table;
/// errors of form are thrown, the same on all ranks. The entries.
options::Source read_options(const options::OptionTable& table, const std::vector<std::string>& words,
                             options::Settings& settings);

/// Whether the value of an option of the table is the word that comes next: "--name" without '=', and no flag.
bool takes_next_word(const options::OptionTable& table, const std::string& word);

/// The same of words that may be files, which it returns: those that belong to no option. A word after an option that
/// takes a value, and was given without '=', is that value.
std::vector<std::string> read_files_and_options(const options::OptionTable& table,
                                                const std::vector<std::string>& words, options::Settings& settings);

/// Refuses a job whose processes were started with different words, VIT_HYBRID_* variables or builds. Collective over
/// the world.
void agree_on_start(const comm::MpiGroup& world, const std::vector<std::string>& words);

/// The command line of this process. MPI gets argc and argv, a command the words behind its name.
struct Invocation {
  int* argc;
  char*** argv;
  std::vector<std::string> words;
};

/// Starts MPI, lets rank 0 speak, and ends MPI after `body`, whose result it returns: the exit code. A job whose
/// processes were started differently is refused.
int run_job(const Invocation& invocation, const std::function<int(comm::MpiSession& session)>& body);

using TableText = std::string (*)(const options::OptionTable& table);

/// `name` may be several words ("data generate"). `run` returns the exit code or throws.
struct Command {
  std::string name;
  std::string summary;
  int (*run)(const Invocation& invocation);
  std::string usage;  ///< --help prints it before the options
  /// What docs/options.md says before the options.
  std::string introduction = "\nThese are given on the command line only.\n";
  /// `text_of` of the table of its options, for docs/options.md and --help; null: it has none.
  std::string (*options_text)(TableText text_of) = nullptr;
  bool takes_megatron = false;  ///< Megatron-LM's names too, which docs/options.md lists
};

/// Command::options_text of options that stand in a struct.
template <class Options, options::OptionTable (*table_of)(Options&)>
std::string options_text(TableText text_of) {
  Options chosen;
  return text_of(table_of(chosen));
}

// The commands of each file.
std::vector<Command> train_commands();
std::vector<Command> plan_commands();
std::vector<Command> calibrate_commands();
std::vector<Command> data_commands();
std::vector<Command> infer_commands();
std::vector<Command> checkpoint_commands();

/// All commands; the first runs when none is named, and of two names that fit the longer counts.
const std::vector<Command>& all_commands();

/// Runs what the command line asks for.
int run(int argc, char** argv);

/// docs/options.md.
std::string options_markdown();
/// What `vit_hybrid options --schema` prints: docs/schemas/configuration.schema.json.
std::string configuration_schema();

}  // namespace vit_hybrid::commands
