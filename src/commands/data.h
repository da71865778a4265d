// The command data: generate, inspect, repack, stats.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

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
  read_options(table, split.options, settings);
  chosen.inputs = std::move(split.files);
  auto problems = settings.problems();
  const auto more = find_problems(chosen);
  problems.insert(problems.end(), more.begin(), more.end());
  return problems;
}

/// Starts the job, reads the options on all ranks, and calls `body(chosen, world)`; `table_of(chosen)` is the table of
/// the options.
template <class Options, class Body>
int run_data_tool(const Invocation& invocation, options::OptionTable (*table_of)(Options&),
                  FindProblems<Options> find_problems, const Body& body) {
  return run_job(invocation, [&](comm::MpiSession& session) {
    Options chosen;
    refuse(same_error_on_all_ranks([&] { return parse_data_tool(invocation.words, chosen, table_of, find_problems); }));
    body(chosen, session.world());
    return 0;
  });
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
