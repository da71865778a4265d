// The command checkpoint: inspect, verify, diff, export, import.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/commands/command.h"
#include "src/config/option_table.h"
#include "src/config/settings.h"

namespace vit_hybrid::commands {

/// How many files a command takes, and what they are called in messages.
struct FileCount {
  size_t least;
  size_t most;
  std::string_view usage;  ///< "A B"
};

/// Parses the words with the table and returns the files among them; other numbers of files and problems of options
/// are Error(kUsage), the same on all ranks. `settings` gets the entries.
std::vector<std::string> parse_checkpoint_tool(const Invocation& invocation, const options::OptionTable& table,
                                               const FileCount& count, options::Settings& settings);

/// The same where nothing needs to be known of the entries.
std::vector<std::string> parse_checkpoint_tool(const Invocation& invocation, const options::OptionTable& table,
                                               const FileCount& count);

/// Refuses to write over a file unless asked to, and over the `input` always. Error(kCannotCreate), Error(kUsage), also
/// without a name; `option` is the option that names it.
void check_output(const std::string& path, bool overwrite, const std::string& option, const std::string& input);

inline constexpr const char* kToolOptions = "\nThese are given on the command line only.\n";

}  // namespace vit_hybrid::commands
