// The first process speaks; options and words taken apart; the start of a job.
#include "src/commands/command.h"

#include <algorithm>
#include <cstdio>

#include "parallel/comm/launcher.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/load_run_config.h"
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
  comm::MpiSession session(invocation.argc, invocation.argv);
  set_log_speaker(session.world().rank() == 0);
  agree_on_start(session.world(), invocation.words);
  const int exit_code = body(session);
  session.finalize();
  return exit_code;
}

}  // namespace vit_hybrid::commands
