// Command: what the first words of the command line choose.
#pragma once

#include <string>
#include <vector>

namespace vit_hybrid::commands {

/// The command line of this process. MPI gets argc and argv, a command the words behind its name.
struct Invocation {
  int* argc;
  char*** argv;
  std::vector<std::string> words;
};

/// `name` may be several words ("data generate"). `run` returns the exit code or throws. `document` is the command's
/// part of docs/options.md and of its --help: headings and tables of its options.
struct Command {
  std::string name;
  std::string summary;
  int (*run)(const Invocation& invocation);
  std::string (*help)();
  std::string (*markdown)();  ///< null: no options
};

/// All commands; the first runs when none is named, and of two names that fit the longer counts.
const std::vector<Command>& all_commands();

/// Runs what the command line asks for.
int run(int argc, char** argv);

// The commands, each in the file of its name.
int run_train(const Invocation& invocation);
std::string train_help();
std::string train_markdown();
int run_data_generate(const Invocation& invocation);
std::string data_generate_help();
std::string data_generate_markdown();
int run_data_generate_images(const Invocation& invocation);
std::string data_generate_images_help();
std::string data_generate_images_markdown();
int run_data_inspect(const Invocation& invocation);
std::string data_inspect_help();
std::string data_inspect_markdown();
int run_data_stats(const Invocation& invocation);
std::string data_stats_help();
std::string data_stats_markdown();
int run_data_repack(const Invocation& invocation);
std::string data_repack_help();
std::string data_repack_markdown();
int run_data_convert(const Invocation& invocation);
std::string data_convert_help();
std::string data_convert_markdown();
int run_evaluate(const Invocation& invocation);
std::string evaluate_help();
std::string evaluate_markdown();
int run_forecast(const Invocation& invocation);
std::string forecast_help();
std::string forecast_markdown();
int run_checkpoint_inspect(const Invocation& invocation);
std::string checkpoint_inspect_help();
std::string checkpoint_inspect_markdown();
int run_checkpoint_verify(const Invocation& invocation);
std::string checkpoint_verify_help();
int run_checkpoint_diff(const Invocation& invocation);
std::string checkpoint_diff_help();
std::string checkpoint_diff_markdown();
int run_checkpoint_export(const Invocation& invocation);
std::string checkpoint_export_help();
std::string checkpoint_export_markdown();
int run_checkpoint_import(const Invocation& invocation);
std::string checkpoint_import_help();
std::string checkpoint_import_markdown();
int run_options(const Invocation& invocation);
std::string options_help();
/// docs/options.md.
std::string options_markdown();

}  // namespace vit_hybrid::commands
