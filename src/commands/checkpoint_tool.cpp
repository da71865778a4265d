// Command lines of the commands `checkpoint ...`.
#include "src/commands/checkpoint_tool.h"

#include "src/base/error.h"
#include "src/base/output_file.h"
#include "src/base/text.h"
#include "src/commands/positional.h"
#include "src/config/sources.h"

namespace vit_hybrid::commands {

namespace {

std::string allowed(const FileCount& count) {
  return count.least == count.most ? str(count.least) : str("at least ", count.least);
}

}  // namespace

std::vector<std::string> parse_checkpoint_tool(const Invocation& invocation, const options::OptionTable& table,
                                               const FileCount& count, options::Settings& settings) {
  return same_error_on_all_ranks([&] {
    SplitWords split = split_words(table, invocation.words);
    settings.add(options::parse_command_line(table, split.options));
    settings.apply_all();
    warn_of_remarks(settings);
    auto problems = settings.problems();
    if (split.files.size() < count.least || split.files.size() > count.most) {
      problems.push_back(str("the command takes ", allowed(count), " file", count.most == 1 ? "" : "s", " (",
                             count.usage, "), not ", split.files.size()));
    }
    if (!problems.empty()) {
      throw Error(ErrorClass::kUsage, options::problem_list(problems));
    }
    return split.files;
  });
}

std::vector<std::string> parse_checkpoint_tool(const Invocation& invocation, const options::OptionTable& table,
                                               const FileCount& count) {
  options::Settings settings(table);
  return parse_checkpoint_tool(invocation, table, count, settings);
}

void check_output(const std::string& path, bool overwrite, const std::string& option, const std::string& input) {
  if (path.empty()) {
    throw Error(ErrorClass::kUsage, str("--", option, " FILE must be given: what is to be written"));
  }
  refuse_input(path, "--" + option, input);
  refuse_existing(path, overwrite, "--" + option);
}

}  // namespace vit_hybrid::commands
