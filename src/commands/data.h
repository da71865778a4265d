// The command data: generate, inspect, repack, stats.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/commands/command.h"
#include "src/config/sources.h"

namespace vit_hybrid::commands {

/// Says what is wrong with the options beside their texts, one line each.
template <class Options>
using FindProblems = std::vector<std::string> (*)(const Options& chosen);

/// Reads `words` into `chosen`, whose member `inputs` gets the files; returns the problems, one line each.
template <class Options>
std::vector<std::string> parse_data_tool(const std::vector<std::string>& words, Options& chosen,
                                         options::OptionTable (*table_of)(Options&),
                                         FindProblems<Options> find_problems) {
  const options::OptionTable table = table_of(chosen);
  SplitWords split = split_words(table, words);
  options::Settings settings(table);
  settings.add(options::parse_command_line(table, split.options));
  settings.apply_all();
  warn_of_remarks(settings);
  chosen.inputs = std::move(split.files);
  auto problems = settings.problems();
  const auto more = find_problems(chosen);
  problems.insert(problems.end(), more.begin(), more.end());
  return problems;
}

/// Starts MPI, reads the options on all ranks, and calls `body(chosen, world)`; `table_of(chosen)` is the table of the
/// options.
template <class Options, class Body>
int run_data_tool(const Invocation& invocation, options::OptionTable (*table_of)(Options&),
                  FindProblems<Options> find_problems, const Body& body) {
  comm::MpiSession session(invocation.argc, invocation.argv);
  set_log_speaker(session.world().rank() == 0);
  agree_on_start(session.world(), invocation.words);
  Options chosen;
  const auto problems =
      same_error_on_all_ranks([&] { return parse_data_tool(invocation.words, chosen, table_of, find_problems); });
  if (!problems.empty()) {
    throw_on_all_ranks(Error(ErrorClass::kUsage, options::problem_list(problems)));
  }
  body(chosen, session.world());
  session.finalize();
  return 0;
}

/// Seconds for a message: two digits after the point.
inline std::string seconds_text(double seconds) {
  return str(std::round(seconds * 100.0) / 100.0, " s");
}

/// The table of default options as text or Markdown.
template <class Options>
std::string data_tool_table(options::OptionTable (*table_of)(Options&),
                            std::string (*text_of)(const options::OptionTable&)) {
  Options chosen;
  return text_of(table_of(chosen));
}

}  // namespace vit_hybrid::commands
