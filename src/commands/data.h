// The command data: generate, inspect, repack, stats.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "src/commands/command.h"

namespace vit_hybrid::commands {

/// Starts the job, reads the options on all ranks, and calls `body(chosen, world)`; `table_of(chosen)` is the table of
/// the options, the member `inputs` gets the files, and `find_problems` says what else is wrong, one line each.
template <class Options, class Body>
int run_data_tool(const Invocation& invocation, options::OptionTable (*table_of)(Options&),
                  std::vector<std::string> (*find_problems)(const Options& chosen), const Body& body) {
  return run_job(invocation, [&](comm::MpiSession& session) {
    Options chosen;
    const options::OptionTable table = table_of(chosen);
    options::Settings settings(table);
    chosen.inputs = read_files_and_options(table, invocation.words, settings);
    auto problems = settings.problems();
    const auto more = find_problems(chosen);
    problems.insert(problems.end(), more.begin(), more.end());
    refuse(problems);
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
