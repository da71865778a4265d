// Dispatch: from the first words of the command line to a command.
#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/commands/command.h"
#include "src/config/option_table.h"
#include "src/machine/loaded_libraries.h"

namespace vit_hybrid::commands {

namespace {

std::string usage() {
  std::string out = "usage: vit_hybrid [COMMAND] [options]\n\ncommands:\n";
  for (const Command& command : all_commands()) {
    out +=
        "  " + command.name + std::string(24 - std::min<size_t>(23, command.name.size()), ' ') + command.summary + "\n";
  }
  return out +
         "\nvit_hybrid COMMAND --help prints the options of a command, vit_hybrid --version what it is built from.\n";
}

// How many of the first words make the name of the command; 0 if they do not.
size_t words_of_name(const Command& command, const std::vector<std::string>& words) {
  const size_t count = static_cast<size_t>(std::count(command.name.begin(), command.name.end(), ' ')) + 1;
  if (words.size() < count) {
    return 0;
  }
  return join(std::vector<std::string>(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count)), " ") ==
                 command.name
             ? count
             : 0;
}

[[noreturn]] void refuse_command(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const Command& command : all_commands()) {
    names.push_back(command.name);
  }
  const bool has_second = words.size() > 1 && !words[1].starts_with('-');
  const std::string given = has_second ? words[0] + " " + words[1] : words[0];
  throw_on_all_ranks(Error(ErrorClass::kUsage, str("unknown command '", shown(given), "'; known are ", join(names)),
                           str("did you mean 'vit_hybrid ", nearest_word(given, names), "'?")));
}

int run_command(const Command& command, const Invocation& invocation) {
  if (asks_for(invocation.words, "help")) {
    print_once(command.help());
    return 0;
  }
  return command.run(invocation);
}

}  // namespace

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = {
      {"train", "train a model; runs when no command is named", &run_train, &train_help, &train_markdown},
      {"data generate", "write a weather data set from an own simulation", &run_data_generate, &data_generate_help,
       &data_generate_markdown},
      {"data generate images", "write a data set of labelled images", &run_data_generate_images,
       &data_generate_images_help, &data_generate_images_markdown},
      {"data inspect", "tell of HDF5 files: layout, cost of reading, values by channel", &run_data_inspect,
       &data_inspect_help, &data_inspect_markdown},
      {"data repack", "rewrite HDF5 files so that they are read fast", &run_data_repack, &data_repack_help,
       &data_repack_markdown},
      {"data stats", "compute means and deviations by channel", &run_data_stats, &data_stats_help,
       &data_stats_markdown},
      {"evaluate", "the figures of a trained model on a data set", &run_evaluate, &evaluate_help, &evaluate_markdown},
      {"forecast", "a trained model on its own output", &run_forecast, &forecast_help, &forecast_markdown},
      {"checkpoint inspect", "what a checkpoint holds", &run_checkpoint_inspect, &checkpoint_inspect_help,
       &checkpoint_inspect_markdown},
      {"checkpoint verify", "check the checksums of checkpoints", &run_checkpoint_verify, &checkpoint_verify_help,
       nullptr},
      {"checkpoint diff", "in what two checkpoints differ", &run_checkpoint_diff, &checkpoint_diff_help,
       &checkpoint_diff_markdown},
      {"checkpoint export", "write weights as safetensors", &run_checkpoint_export, &checkpoint_export_help,
       &checkpoint_export_markdown},
      {"checkpoint import", "make a checkpoint from safetensors", &run_checkpoint_import, &checkpoint_import_help,
       &checkpoint_import_markdown},
      {"options", "print all options as Markdown (docs/options.md)", &run_options, &options_help, nullptr},
  };
  return commands;
}

int run(int argc, char** argv) {
  Invocation invocation{&argc, &argv, {argv + 1, argv + argc}};
  const auto& words = invocation.words;
  if (asks_for(words, "version")) {
    print_once(train::program_text());
    return 0;
  }
  const Command& first = all_commands().front();
  const bool names_none = words.empty() || words.front().starts_with('-');
  if (names_none && asks_for(words, "help")) {
    print_once(usage() + "\n" + first.help());
    return 0;
  }
  if (names_none) {
    return run_command(first, invocation);
  }
  const Command* chosen = nullptr;
  size_t most = 0;
  for (const Command& command : all_commands()) {
    if (const size_t count = words_of_name(command, words); count > most) {
      most = count;
      chosen = &command;
    }
  }
  if (chosen != nullptr) {
    invocation.words.erase(invocation.words.begin(), invocation.words.begin() + static_cast<std::ptrdiff_t>(most));
    return run_command(*chosen, invocation);
  }
  if (words.size() == 2 && asks_for(words, "help")) {
    print_once(usage());
    return 0;
  }
  refuse_command(words);
}

}  // namespace vit_hybrid::commands
