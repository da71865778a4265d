// The command line as a source of settings, parsed with Boost.Program_options.
#include <algorithm>
#include <boost/program_options.hpp>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/sources.h"

namespace vit_hybrid::options {

namespace {

namespace po = boost::program_options;

constexpr const char* kNegation = "no-";

// Words that begin with two dashes, with '-' for '_' in the name; "-h" is the only short one.
std::vector<std::string> with_canonical_names(std::vector<std::string> words) {
  for (std::string& word : words) {
    if (word == "-h") {
      word = "--help";
    } else if (word.starts_with("--")) {
      const auto end = std::find(word.begin(), word.end(), '=');
      std::replace(word.begin(), end, '_', '-');
    }
  }
  return words;
}

po::options_description describe(const OptionTable& table) {
  po::options_description description;
  for (const auto& [name, named] : table.names()) {
    if (named.is_flag()) {
      description.add_options()(name.c_str(), po::value<std::string>()->implicit_value("true"), "");
      description.add_options()((kNegation + name).c_str(), "");
    } else {
      description.add_options()(name.c_str(), po::value<std::string>(), "");
    }
  }
  return description;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorClass::kUsage, "command line: " + what, hint);
}

[[noreturn]] void refuse_missing_value(const Option& option, const std::string& name) {
  refuse(str("option '--", name, "' needs a value"), str("give --", name, " <", option.value.type, ">"));
}

std::string without_dashes(const std::string& name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

po::parsed_options parse(const OptionTable& table, const po::options_description& description,
                         const std::vector<std::string>& words) {
  using namespace po::command_line_style;
  try {
    return po::command_line_parser(words)
        .options(description)
        .style(allow_long | long_allow_adjacent | long_allow_next)
        .run();
  } catch (const po::unknown_option& error) {
    const std::string name = without_dashes(error.get_option_name());
    const std::string meant = table.meant_by(name);
    refuse(str("unknown option '--", shown(name), "'"),
           meant.empty() ? "the command has no options" : str("did you mean '--", meant, "'?"));
  } catch (const po::error_with_option_name& error) {
    const std::string name = without_dashes(error.get_option_name());
    if (const Option* option = table.find(name)) {
      refuse_missing_value(*option, name);
    }
    refuse(str("option '--", shown(name), "' takes no value"), "");
  } catch (const po::error& error) {
    refuse(shown(error.what()), "");
  }
}

Entry entry_of(const OptionTable& table, const po::option& parsed) {
  Entry entry{parsed.string_key, parsed.value.empty() ? "" : parsed.value.front(), Place::kCommandLine, "command line"};
  const Option* option = table.find(entry.name);
  if (option == nullptr) {
    return {entry.name.substr(std::string(kNegation).size()), "false", entry.place, entry.origin};
  }
  if (parsed.value.empty()) {
    entry.text = "true";  // a flag without a value
  }
  // Boost takes the word after an option as its value even if it looks like another option.
  if (parsed.original_tokens.size() > 1 && entry.text.starts_with("--")) {
    refuse_missing_value(*option, entry.name);
  }
  return entry;
}

}  // namespace

Source parse_command_line(const OptionTable& table, const std::vector<std::string>& words) {
  const auto description = describe(table);
  const auto parsed = parse(table, description, with_canonical_names(words));
  Source source;
  for (const po::option& option : parsed.options) {
    if (option.string_key.empty()) {
      const std::string& stray = option.value.empty() ? std::string() : option.value.front();
      refuse(str("stray word '", shown(stray), "'"),
             stray.starts_with('-') ? "options begin with two dashes" : "options are given as --name value");
    }
    source.push_back(entry_of(table, option));
  }
  return source;
}

}  // namespace vit_hybrid::options
