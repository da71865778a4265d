// Which words are files.
#include "src/commands/positional.h"

namespace vit_hybrid::commands {

SplitWords split_words(const options::OptionTable& table, const std::vector<std::string>& words) {
  SplitWords split;
  bool is_value = false;
  for (const std::string& word : words) {
    const bool is_option = word.starts_with("-") && word.size() > 1;
    (is_option || is_value ? split.options : split.files).push_back(word);
    is_value = false;
    if (is_option && word.starts_with("--") && word.find('=') == std::string::npos) {
      const options::Named* const named = table.find_name(word.substr(2));
      is_value = named != nullptr && !named->is_flag();
    }
  }
  return split;
}

}  // namespace vit_hybrid::commands
