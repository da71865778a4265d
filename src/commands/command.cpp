// From the first words of the command line to a command; its options and words; what the first process prints, also for
// `options`.
#include "src/commands/command.h"

#include <algorithm>
#include <cstdio>

#include "data/hdf5/hdf5_open.h"
#include "parallel/comm/launcher.h"
#include "src/base/error.h"
#include "src/base/folder_lock.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/load_run_config.h"
#include "src/config/option_table.h"
#include "src/config/sources.h"
#include "src/report/run_record.h"

namespace vit_hybrid::commands {

bool is_first_process() {
  const auto& launch = comm::own_launch();
  return !launch || launch->rank == 0;
}

void print_once(const std::string& text) {
  if (is_first_process()) {
    std::fputs(printable(text, std::string::npos).c_str(), stdout);
    std::fflush(stdout);
  }
}

void throw_on_all_ranks(const Error& error) {
  throw comm::AgreedError(error, "", is_first_process());
}

void refuse(const std::vector<std::string>& problems, ErrorClass error_class) {
  if (!problems.empty()) {
    throw_on_all_ranks(Error(error_class, options::problem_list(problems)));
  }
}

bool asks_for(const std::vector<std::string>& words, const std::string& name) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    const std::string given = options::canonical_name(word.substr(0, word.find('=')));
    return given == "--" + name || (name == "help" && word == "-h");
  });
}

options::Source read_options(const options::OptionTable& table, const std::vector<std::string>& words,
                             options::Settings& settings) {
  return same_error_on_all_ranks([&] {
    options::Source entries = options::parse_command_line(table, words);
    settings.add(entries);
    settings.apply_all();
    for (const std::string& remark : settings.remarks()) {
      if (is_first_process()) log_warning(remark);
    }
    return entries;
  });
}

bool takes_next_word(const options::OptionTable& table, const std::string& word) {
  const bool is_name = word.starts_with("--") && word.find('=') == std::string::npos;
  const options::Named* const named = is_name ? table.find_name(word.substr(2)) : nullptr;
  return named != nullptr && !named->is_flag();
}

std::vector<std::string> read_files_and_options(const options::OptionTable& table,
                                                const std::vector<std::string>& words, options::Settings& settings) {
  std::vector<std::string> files, of_options;
  bool is_value = false;
  for (const std::string& word : words) {
    const bool is_option = word.starts_with("-") && word.size() > 1;
    (is_option || is_value ? of_options : files).push_back(word);
    is_value = is_option && takes_next_word(table, word);
  }
  read_options(table, of_options, settings);
  return files;
}

void agree_on_start(const comm::MpiGroup& world, const std::vector<std::string>& words) {
  comm::same_on_all_ranks(world, join(words, " "), "the command line");
  std::string variables;
  for (const auto& entry : options::parse_environment(options::process_environment())) {
    variables += options::environment_name(entry.name) + "=" + entry.text + "\n";
  }
  comm::same_on_all_ranks(world, variables, "the environment");
  comm::same_on_all_ranks(world, train::program_text(), "the build");
}

int run_job(const Invocation& invocation, const std::function<int(comm::MpiSession& session)>& body) {
  data::hdf5_initialize();  // before MPI
  comm::MpiSession session(invocation.argc, invocation.argv);
  set_log_speaker(session.world().rank() == 0);
  agree_on_start(session.world(), invocation.words);
  set_job_mark(session.world().broadcast(LockHolder::self(0.0).token.substr(0, 8), 0));
  const int exit_code = body(session);
  session.finalize();
  return exit_code;
}

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
  const std::vector<std::string> first(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count));
  return join(first, " ") == command.name ? count : 0;
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

std::string help(const Command& command) {
  return command.options_text == nullptr ? command.usage : command.usage + command.options_text(&options::help_text);
}

int run_command(const Command& command, const Invocation& invocation) {
  if (asks_for(invocation.words, "help")) {
    print_once(help(command));
    return 0;
  }
  return command.run(invocation);
}

constexpr const char* kIntroduction = R"(# Options

This file is what `vit_hybrid options` prints.

Every option of `train` can be given as `--name value` or `--name=value` on the command line, as `name: value` in a YAML
file that `--config FILE[:SECTION]` names, or as a variable `VIT_HYBRID_NAME` of the environment; flags also as `--name`
and `--no-name`. `-` and `_` are the same in a name. Files give way to the environment, both to the command line; of
several `--config`, later ones win; a preset gives way to what is said beside it. An option given twice on the command
line counts as the last one says, and a line tells so; a key given twice in a file is refused. An option of the command
line or the environment that has no effect beside the others is named at the start. `--print-config` shows the outcome,
with the origin of each value.

Megatron-LM's names are accepted in all three places (the list is under the heading Megatron): flags of its that are a
value here, as `--bf16`, are flags, and `bf16: true` in a file. Such a flag that is off (`--no-bf16`, `bf16: false`)
takes its value back where that was said before, and leaves any other as it is; `use_distributed_optimizer` off is
`zero: 0`. Files are regular files of at most 1 MiB.

Keys of the reference workload's YAML have their meaning under the names below. `model_backend`, `data_loader_config`,
`enable_fused`, `enable_jit`, `enable_apex`, `inf_data_path`, `wireup_info` and `wireup_store` are accepted in files,
have no meaning here, and are listed at the start of the run; `dt` may be 1 only.
)";

std::string markdown_with_megatron(const options::OptionTable& table) {
  return options::markdown_text(table) + options::megatron_markdown(table);
}

std::string json_text(const options::OptionTable& table) {
  return options::json_table(table).dump();
}

// All commands with their options.
std::string options_json() {
  Json commands = Json::array();
  for (const Command& command : all_commands()) {
    commands.push_back(
        {{"command", command.name},
         {"summary", command.summary},
         {"options", command.options_text == nullptr ? Json::array() : Json::parse(command.options_text(&json_text))}});
  }
  return commands.dump(1) + "\n";
}

int run_options(const Invocation& invocation) {
  const std::string word = invocation.words.size() == 1 ? invocation.words.front() : "";
  if (!invocation.words.empty() && word != "--json" && word != "--schema") {
    throw_on_all_ranks(Error(ErrorClass::kUsage, str("the command options takes --json, --schema or nothing, not '",
                                                     join(invocation.words, " "), "'")));
  }
  print_once(word == "--json" ? options_json() : word == "--schema" ? configuration_schema() : options_markdown());
  return 0;
}

}  // namespace

std::string configuration_schema() {
  const Command& train = all_commands().front();
  return train.options_text([](const options::OptionTable& table) { return options::json_schema(table).dump(1); }) +
         "\n";
}

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = [] {
    std::vector<Command> all = train_commands();
    for (const auto& of_file :
         {plan_commands(), calibrate_commands(), data_commands(), infer_commands(), checkpoint_commands()}) {
      all.insert(all.end(), of_file.begin(), of_file.end());
    }
    all.push_back({.name = "options",
                   .summary = "print all options as Markdown (docs/options.md)",
                   .run = &run_options,
                   .usage = "usage: vit_hybrid options [--json | --schema]\n\nPrints all options of all commands as "
                            "Markdown, or as JSON; or the JSON Schema of a configuration (docs/schemas).\n"});
    return all;
  }();
  return commands;
}

std::string options_markdown() {
  std::string out = kIntroduction;
  for (const Command& command : all_commands()) {
    if (command.options_text != nullptr) {
      out += "\n## `vit_hybrid " + command.name + "`\n" + command.introduction +
             command.options_text(command.takes_megatron ? &markdown_with_megatron : &options::markdown_text);
    }
  }
  return out;
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
    print_once(usage() + "\n" + help(first));
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
