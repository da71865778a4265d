// Reading and printing of values, tables of options, and their help.
#include "src/config/option_table.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::options {

namespace {

const Json kAnyText = {{"type", {"string", "number", "boolean", "null"}}};  // YAML takes some texts for others
constexpr int64_t kAsGoodAsEndless = int64_t{1} << 40;  // a bound up here only keeps products from overflowing

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

template <class Number>
std::optional<Number> whole(const std::string& text) {
  Number value{};
  const char* begin = text.data() + (text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || rest != end) {
    return std::nullopt;
  }
  return value;
}

// The words that mean "nothing" in YAML and Python stand for the word that stands for 0.
bool is_word(const std::string& text, const std::string& word) {
  const std::string given = lower(text);
  const bool nothing = given.empty() || given == "none" || given == "null" || given == "~";
  return !word.empty() && (given == word || nothing);
}

std::string range_text(const IntegerRange& range) {
  const bool has_least = range.least != std::numeric_limits<int64_t>::min();
  const bool has_most = range.most < kAsGoodAsEndless;
  if (has_least && has_most) {
    return str(range.least, " to ", range.most);
  }
  return has_least ? str("at least ", range.least) : has_most ? str("at most ", range.most) : std::string();
}

std::string range_text(const NumberRange& range) {
  using Bound = NumberRange::Bound;
  std::string out;
  if (range.least != -std::numeric_limits<double>::max()) {
    out = str(range.least_bound == Bound::kIncluded ? "at least " : "more than ", range.least);
  }
  if (range.most != std::numeric_limits<double>::max()) {
    out += str(out.empty() ? "" : ", ", range.most_bound == Bound::kIncluded ? "at most " : "less than ", range.most);
  }
  return out;
}

bool contains(const IntegerRange& range, int64_t value) {
  return value >= range.least && value <= range.most;
}

bool contains(const NumberRange& range, double value) {
  using Bound = NumberRange::Bound;
  const bool above = range.least_bound == Bound::kIncluded ? value >= range.least : value > range.least;
  const bool below = range.most_bound == Bound::kIncluded ? value <= range.most : value < range.most;
  return std::isfinite(value) && above && below;
}

Json schema_of(const IntegerRange& range) {
  Json schema = {{"type", "integer"}};
  if (range.least != std::numeric_limits<int64_t>::min()) schema["minimum"] = range.least;
  if (range.most < kAsGoodAsEndless) schema["maximum"] = range.most;
  return schema;
}

Json schema_of(const NumberRange& range) {
  using Bound = NumberRange::Bound;
  Json schema = {{"type", "number"}};
  if (range.least != -std::numeric_limits<double>::max()) {
    schema[range.least_bound == Bound::kIncluded ? "minimum" : "exclusiveMinimum"] = range.least;
  }
  if (range.most != std::numeric_limits<double>::max()) {
    schema[range.most_bound == Bound::kIncluded ? "maximum" : "exclusiveMaximum"] = range.most;
  }
  // YAML 1.1 takes 1e-5 for a text.
  const Json as_text = {{"type", "string"}, {"pattern", "^[-+]?[0-9]*[.]?[0-9]+[eE][-+]?[0-9]+$"}};
  return {{"anyOf", {schema, as_text}}};
}

template <class Parsed, class Number, class Range>
Value number_value(Kind kind, const char* type, Number& variable, const Range& range) {
  Value value{kind, type, range_text(range), {}, {}, range.word, schema_of(range)};
  value.parse = [&variable, range](const std::string& text) {
    if (is_word(text, range.word)) {
      variable = static_cast<Number>(range.word_value);
      return true;
    }
    const auto parsed = whole<Parsed>(text);
    if (!parsed || !contains(range, *parsed)) {
      return false;
    }
    variable = static_cast<Number>(*parsed);
    return true;
  };
  value.print = [&variable, word = range.word, word_value = static_cast<Number>(range.word_value)] {
    return variable == word_value && !word.empty() ? word : str(variable);
  };
  return value;
}

constexpr size_t kIndent = 34;
constexpr size_t kWidth = 100;

std::string left_column(const Option& option) {
  const bool is_flag = option.value.kind == Kind::kFlag;
  return is_flag ? "  --[no-]" + option.name : "  --" + option.name + " <" + option.value.type + ">";
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
  for (const ShiftedName& other : option.shifted_names) {
    out.push_back(str("--", other.name, " (and ", other.more, ")"));
  }
  for (const AddingFlag& other : option.adding_flags) {
    out.push_back(str("--", other.name, " (adds ", other.word, ")"));
  }
  return out;
}

// What stands behind the sentence: unit, range, default, other names.
std::string right_column(const Option& option) {
  std::string out = option.help + (option.unit.empty() ? "" : " [" + option.unit + "]");
  if (const std::string allowed = allowed_column(option.value); option.value.kind != Kind::kFlag && !allowed.empty()) {
    out += " (" + allowed + ")";
  }
  const std::string by_default = option.value.print();
  out += " default: " + (by_default.empty() ? "none" : by_default);
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

// Of one name in a file. Words that mean nothing stand for the option's word; a flag of another program is a boolean.
Json property_schema(const Named& named) {
  const Option& option = *named.option;
  const Json schema = option.value.schema.is_null() ? kAnyText : option.value.schema;
  const std::string unit = option.unit.empty() ? "" : " [" + option.unit + "]";
  Json property = {{"description", option.help + unit}};
  if (!named.value.empty()) {
    property["description"] = str(yaml_key(option.name), ": ", named.value);
    property["type"] = "boolean";
  } else if (named.adding != nullptr) {
    property = {{"description", str(yaml_key(option.name), ": also ", named.adding->word)}, {"type", "boolean"}};
  } else if (named.shifted != nullptr) {
    property = schema_of(named.shifted->range);
    property["description"] = str(yaml_key(option.name), ": ", named.shifted->more, " more than this");
  } else if (option.value.word.empty()) {
    property.update(schema);
  } else {
    Json words = {option.value.word, "none", nullptr};
    if (option.value.word == "none") words.erase(1);
    property["anyOf"] = {schema, {{"enum", std::move(words)}}};
  }
  return property;
}

}  // namespace

std::string allowed_column(const Value& value) {
  const std::string& word = value.word;
  return word.empty() || value.allowed.empty() ? word + value.allowed : word + ", or " + value.allowed;
}

std::string allowed_text(const Value& value) {
  if (value.kind == Kind::kChoice || value.kind == Kind::kFlag) {
    return value.allowed;
  }
  if (value.allowed.empty()) {
    return (value.word.empty() ? "" : value.word + ", or ") + "any finite " + value.type;
  }
  if (value.word.empty()) {
    return value.type + ", " + value.allowed;
  }
  return str(value.word, ", or ", value.kind == Kind::kInteger ? "an " : "a ", value.type, " ", value.allowed);
}

Value integer(int64_t& variable, const IntegerRange& range) {
  return number_value<int64_t>(Kind::kInteger, "integer", variable, range);
}

Value integer(int& variable, IntegerRange range) {
  range.most = std::min<int64_t>(range.most, std::numeric_limits<int>::max());  // no value is cut off
  return number_value<int64_t>(Kind::kInteger, "integer", variable, range);
}

Value integer(uint64_t& variable, IntegerRange range) {
  range.least = std::max<int64_t>(range.least, 0);
  return number_value<int64_t>(Kind::kInteger, "integer", variable, range);
}

Value number(double& variable, const NumberRange& range) {
  return number_value<double>(Kind::kNumber, "number", variable, range);
}

Value flag(bool& variable) {
  Value value{Kind::kFlag, "flag", "true, false", {}, {}, {}, {{"type", "boolean"}}};
  value.parse = [&variable](const std::string& text) {
    static const std::map<std::string, bool> words = {{"true", true},   {"yes", true}, {"on", true},   {"1", true},
                                                      {"false", false}, {"no", false}, {"off", false}, {"0", false}};
    const auto found = words.find(lower(text));
    if (found != words.end()) {
      variable = found->second;
    }
    return found != words.end();
  };
  value.print = [&variable] { return std::string(variable ? "true" : "false"); };
  return value;
}

Value text(std::string& variable, std::string type) {
  Value value{Kind::kText, std::move(type), "", {}, {}, {}, kAnyText};
  value.parse = [&variable](const std::string& given) {
    variable = given;
    return true;
  };
  value.print = [&variable] { return variable; };
  return value;
}

Value extent(int64_t& height, int64_t& width, int64_t most, SquareText square) {
  const Json side = {{"type", "integer"}, {"minimum", 1}, {"maximum", most}};
  const Json sides = {{"type", "array"}, {"items", side}, {"minItems", 2}, {"maxItems", 2}};
  const Json in_words = {{"type", "string"}, {"pattern", "^[0-9]+([xX,][0-9]+)?$"}};
  Value value{Kind::kExtent, "HxW", str("1 to ", most, " each"), {}, {}, {}, {{"anyOf", {side, sides, in_words}}}};
  value.parse = [&height, &width, most](const std::string& text) {
    const size_t cut = text.find_first_of("xX,");
    const auto first = whole<int64_t>(text.substr(0, cut));
    const auto second = cut == std::string::npos ? first : whole<int64_t>(text.substr(cut + 1));
    if (!first || !second || std::min(*first, *second) < 1 || std::max(*first, *second) > most) {
      return false;
    }
    height = *first;
    width = *second;
    return true;
  };
  value.print = [&height, &width, square] {
    return square == SquareText::kOneNumber && height == width ? str(height) : str(height, "x", width);
  };
  return value;
}

Value word(std::string& variable, const std::vector<std::string>& words) {
  Value value = choice(
      words, {}, [&variable, words](size_t i) { variable = words.at(i); }, [] { return size_t{0}; });
  value.print = [&variable] { return variable; };
  if (variable.empty()) {
    for (const Json& nothing : {Json(""), Json("none"), Json()}) {
      value.schema["enum"].push_back(nothing);
    }
    value.parse = [&variable, parse = value.parse](const std::string& text) {
      if (is_word(text, "none")) {
        variable.clear();
        return true;
      }
      return parse(text);
    };
  }
  return value;
}

Value text_list(std::vector<std::string>& variable, std::string type) {
  Value value{Kind::kText, std::move(type), "", {}, {}, {}, kAnyText};
  value.parse = [&variable](const std::string& given) {
    variable.push_back(given);
    return true;
  };
  value.print = [&variable] { return join(variable); };
  return value;
}

Value choice(std::vector<std::string> names, std::vector<std::pair<std::string, size_t>> synonyms,
             std::function<void(size_t)> set, std::function<size_t()> get) {
  Value value{Kind::kChoice, "word", join(names), {}, {}, {}, {{"enum", names}}};
  if (std::find(names.begin(), names.end(), "off") != names.end()) {
    value.schema["enum"].push_back(false);  // what YAML 1.1 makes of it
    value.schema["enum"].push_back(true);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    synonyms.emplace_back(names[i], i);
  }
  value.parse = [synonyms = std::move(synonyms), set = std::move(set)](const std::string& text) {
    const auto found = std::find_if(synonyms.begin(), synonyms.end(), [given = lower(text)](const auto& synonym) {
      return lower(synonym.first) == given;
    });
    if (found == synonyms.end()) {
      return false;
    }
    set(found->second);
    return true;
  };
  value.print = [names = std::move(names), get = std::move(get)] { return names.at(get()); };
  return value;
}

std::string canonical_name(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string yaml_key(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string environment_name(const std::string& name) {
  std::string out = "VIT_HYBRID_" + yaml_key(name);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::toupper(c); });
  return out;
}

void OptionTable::add(Option option) {
  option.group = group_;
  options_.push_back(std::move(option));
  const Option& added = options_.back();
  const auto know = [&](const std::string& name, Named named) {
    named.option = &added;
    const bool is_new = by_name_.emplace(canonical_name(name), std::move(named)).second;
    VH_ASSERT(is_new, "option " + name + " is in the table twice");
  };
  know(added.name, {});
  for (const std::string& alias : added.aliases) {
    know(alias, {});
  }
  for (const MegatronName& other : added.megatron) {
    if (other.name != added.name) {
      know(other.name, {.value = other.value, .value_off = other.value_off});
    }
  }
  for (const ShiftedName& other : added.shifted_names) {
    know(other.name, {.shifted = &other});
  }
  for (const AddingFlag& other : added.adding_flags) {
    know(other.name, {.adding = &other});
  }
}

const Named* OptionTable::find_name(const std::string& name) const {
  const auto found = by_name_.find(canonical_name(name));
  return found == by_name_.end() ? nullptr : &found->second;
}

const Option* OptionTable::find(const std::string& name) const {
  const Named* const named = find_name(name);
  return named == nullptr ? nullptr : named->option;
}

std::string OptionTable::meant_by(const std::string& name) const {
  std::map<std::string, std::string> meanings;  // of all names, here and elsewhere
  for (const Option& option : options_) {
    for (const std::string& other : option.names_elsewhere) {
      meanings.emplace(other, option.name);
    }
  }
  for (const auto& [known, named] : by_name_) {
    meanings.insert_or_assign(known, known);
  }
  std::vector<std::string> names;
  for (const auto& [known, meaning] : meanings) {
    names.push_back(known);
  }
  const std::string similar = similar_word(canonical_name(name), names);
  return similar.empty() ? "" : meanings.at(similar);
}

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

Json json_table(const OptionTable& table) {
  Json rows = Json::array();
  for (const Option& option : table.options()) {
    Json megatron = Json::array();
    for (const MegatronName& name : option.megatron) {
      megatron.push_back(name.value.empty() ? Json{{"name", name.name}}
                                            : Json{{"name", name.name}, {"is", name.value}});
    }
    rows.push_back(
        {{"name", option.name},
         {"group", option.group},
         {"type", option.value.type},
         {"allowed", allowed_column(option.value)},
         {"default", option.value.print()},
         {"unit", option.unit},
         {"meaning", option.help},
         {"aliases", option.aliases},
         {"megatron", std::move(megatron)},
         {"key", yaml_key(option.name)},
         {"environment", option.scope == Scope::kEverywhere ? Json(environment_name(option.name)) : Json()}});
  }
  return rows;
}

Json json_schema(const OptionTable& table) {
  Json properties;
  for (const auto& [name, named] : table.names()) {
    if (named.option->scope == Scope::kEverywhere) {
      properties[yaml_key(name)] = property_schema(named);
    }
  }
  for (const auto& [key, value] : table.unused_keys()) {
    properties[yaml_key(key)] = {{"description", "Accepted, and without a meaning here."}};
  }
  const Json settings = {{"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
  const Json reference = {{"$ref", "#/$defs/settings"}};
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"$id", "configuration.schema.json"},
          {"title", "A configuration"},
          {"description", "A file for --config, and config.yaml of a run's folder: settings, or sections of settings."},
          {"anyOf", {reference, {{"type", "object"}, {"additionalProperties", reference}}}},
          {"$defs", {{"settings", settings}}}};
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

namespace {

// "10-12", or "10" for one step.
std::optional<StepRange> parse(const std::string& text) {
  StepRange steps;
  const char* const end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, steps.first);
  steps.last = steps.first;
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
    read = std::from_chars(read.ptr + 1, end, steps.last);
  }
  const bool is_whole = read.ec == std::errc() && read.ptr == end;
  return is_whole && steps.first >= 1 && steps.first <= steps.last ? std::optional(steps) : std::nullopt;
}

}  // namespace

std::string StepRange::text() const {
  return !any() ? "none" : first == last ? str(first) : str(first, "-", last);
}

Value step_range(StepRange& steps, const std::string& head) {
  Value value{Kind::kText, "range", head + "A-B, with 1 <= A <= B", {}, {}, "none"};
  value.parse = [&steps, head](const std::string& text) {
    std::optional<StepRange> parsed;
    if (text.empty() || text == "none" || text == "null" || text == "~") {
      parsed.emplace();
    } else if (text.starts_with(head)) {
      parsed = parse(text.substr(head.size()));
    }
    steps = parsed.value_or(steps);
    return parsed.has_value();
  };
  value.print = [&steps, head] { return steps.any() ? head + steps.text() : "none"; };
  return value;
}

}  // namespace vit_hybrid::options
