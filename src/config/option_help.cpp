// Help and documentation, made from the table of options.
#include <algorithm>
#include <sstream>

#include "src/base/text.h"
#include "src/config/option_table.h"

namespace vit_hybrid::options {

namespace {

constexpr size_t kIndent = 34;
constexpr size_t kWidth = 100;

std::string left_column(const Option& option) {
  const bool is_flag = option.value.kind == Kind::kFlag;
  return is_flag ? "  --[no-]" + option.name : "  --" + option.name + " <" + option.value.type + ">";
}

std::string unit_text(const Option& option) {
  return option.unit.empty() ? "" : " [" + option.unit + "]";
}

std::string default_text(const Option& option) {
  const std::string text = option.value.print();
  return text.empty() ? "none" : text;
}

// All names but the first, with the values of those that are flags.
std::vector<std::string> other_names(const Option& option) {
  std::vector<std::string> out;
  for (const std::string& alias : option.aliases) {
    out.push_back("--" + alias);
  }
  for (const MegatronName& other : option.megatron) {
    if (other.name != option.name) {
      out.push_back("--" + other.name + (other.value.empty() ? "" : " (" + other.value + ")"));
    }
  }
  return out;
}

// What stands behind the sentence: unit, range, default, other names.
std::string right_column(const Option& option) {
  std::string out = option.help + unit_text(option);
  if (const std::string allowed = allowed_column(option.value); option.value.kind != Kind::kFlag && !allowed.empty()) {
    out += " (" + allowed + ")";
  }
  out += " default: " + default_text(option);
  const auto others = other_names(option);
  return others.empty() ? out : out + "; also " + join(others);
}

// `text` in lines of kWidth, the second and later ones indented.
std::string wrapped(const std::string& left, const std::string& text) {
  std::string line = left + std::string(left.size() + 2 <= kIndent ? kIndent - left.size() : 0, ' ');
  std::string out;
  if (left.size() + 2 > kIndent) {
    out = left + "\n";
    line = std::string(kIndent, ' ');
  }
  std::istringstream words(text);
  bool is_first = true;
  for (std::string word; words >> word; is_first = false) {
    if (!is_first && line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = std::string(kIndent, ' ') + word;
    } else {
      line += (is_first ? "" : " ") + word;
    }
  }
  return out + line + "\n";
}

// Inside of a Markdown table cell.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.insert(at, "\\");
  }
  return text;
}

std::string code(const std::string& text) {
  return text.empty() ? "" : "`" + text + "`";
}

std::string markdown_row(const Option& option) {
  const std::string name = option.value.kind == Kind::kFlag ? "--[no-]" + option.name : "--" + option.name;
  const std::string aliases = option.aliases.empty() ? "" : "<br>" + code("--" + join(option.aliases, "`<br>`--"));
  return str("| ", code(name), aliases, " | ", option.value.type, " | ", code(option.value.print()), " | ",
             cell(allowed_column(option.value)), " | ", option.unit, " | ", cell(option.help), " |\n");
}

}  // namespace

std::string help_text(const OptionTable& table) {
  std::string out;
  std::string group;
  for (const Option& option : table.options()) {
    if (option.group != group) {
      group = option.group;
      out += "\n" + group + ":\n";
    }
    out += wrapped(left_column(option), right_column(option));
  }
  return out;
}

std::string megatron_markdown(const OptionTable& table) {
  std::vector<std::string> same;
  std::string out = "\n### Megatron\n\n| Megatron-LM | here |\n|---|---|\n";
  for (const Option& option : table.options()) {
    for (const MegatronName& other : option.megatron) {
      if (other.name == option.name) {
        same.push_back(code("--" + option.name));
      } else {
        const std::string value = other.value.empty() ? "" : " " + other.value;
        out += str("| ", code("--" + other.name), " | ", code("--" + option.name + value), " |\n");
      }
    }
  }
  return out + "\nThe same name and meaning have " + join(same) + ".\n";
}

std::string markdown_text(const OptionTable& table) {
  std::string out;
  std::string group;
  for (const Option& option : table.options()) {
    if (option.group != group) {
      group = option.group;
      out +=
          "\n### " + group + "\n\n| option | type | default | allowed | unit | meaning |\n|---|---|---|---|---|---|\n";
    }
    out += markdown_row(option);
  }
  return out;
}

}  // namespace vit_hybrid::options
