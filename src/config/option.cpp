// Option: reading and printing of values.
#include "src/config/option.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "src/base/text.h"

namespace vit_hybrid::options {

namespace {

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

bool contains(const NumberRange& range, double value) {
  using Bound = NumberRange::Bound;
  const bool above = range.least_bound == Bound::kIncluded ? value >= range.least : value > range.least;
  const bool below = range.most_bound == Bound::kIncluded ? value <= range.most : value < range.most;
  return std::isfinite(value) && above && below;
}

template <class Integer>
Value integer_value(Integer& variable, IntegerRange range) {
  // A narrow variable narrows the range, so that no value is cut off.
  range.most = std::min(range.most, std::numeric_limits<Integer>::max() < std::numeric_limits<int64_t>::max()
                                        ? static_cast<int64_t>(std::numeric_limits<Integer>::max())
                                        : std::numeric_limits<int64_t>::max());
  Value value{Kind::kInteger, "integer", range_text(range), {}, {}, range.word_for_zero};
  value.parse = [&variable, range](const std::string& text) {
    if (is_word(text, range.word_for_zero)) {
      variable = 0;
      return true;
    }
    const auto parsed = whole<int64_t>(text);
    if (!parsed || *parsed < range.least || *parsed > range.most) {
      return false;
    }
    variable = static_cast<Integer>(*parsed);
    return true;
  };
  value.print = [&variable, word = range.word_for_zero] {
    return variable == 0 && !word.empty() ? word : std::to_string(variable);
  };
  return value;
}

}  // namespace

std::string allowed_column(const Value& value) {
  const std::string& word = value.word_for_zero;
  return word.empty() || value.allowed.empty() ? word + value.allowed : word + ", or " + value.allowed;
}

std::string allowed_text(const Value& value) {
  if (value.kind == Kind::kChoice || value.kind == Kind::kFlag) {
    return value.allowed;
  }
  if (value.allowed.empty()) {
    return (value.word_for_zero.empty() ? "" : value.word_for_zero + ", or ") + "any finite " + value.type;
  }
  if (value.word_for_zero.empty()) {
    return value.type + ", " + value.allowed;
  }
  return str(value.word_for_zero, ", or ", value.kind == Kind::kInteger ? "an " : "a ", value.type, " ", value.allowed);
}

Value integer(int64_t& variable, IntegerRange range) {
  return integer_value(variable, std::move(range));
}
Value integer(int& variable, IntegerRange range) {
  return integer_value(variable, std::move(range));
}

Value integer(uint64_t& variable, IntegerRange range) {
  range.least = std::max<int64_t>(range.least, 0);
  return integer_value(variable, std::move(range));
}

Value number(double& variable, const NumberRange& range) {
  Value value{Kind::kNumber, "number", range_text(range), {}, {}, range.word_for_zero};
  value.parse = [&variable, range](const std::string& text) {
    if (is_word(text, range.word_for_zero)) {
      variable = 0.0;
      return true;
    }
    const auto parsed = whole<double>(text);
    if (!parsed || !contains(range, *parsed)) {
      return false;
    }
    variable = *parsed;
    return true;
  };
  value.print = [&variable, word = range.word_for_zero] {
    return variable == 0.0 && !word.empty() ? word : digits(variable);
  };
  return value;
}

Value flag(bool& variable) {
  Value value{Kind::kFlag, "flag", "true, false", {}, {}};
  value.parse = [&variable](const std::string& text) {
    static const std::vector<std::string> yes = {"true", "yes", "on", "1"};
    static const std::vector<std::string> no = {"false", "no", "off", "0"};
    const std::string given = lower(text);
    const bool is_yes = std::find(yes.begin(), yes.end(), given) != yes.end();
    if (!is_yes && std::find(no.begin(), no.end(), given) == no.end()) {
      return false;
    }
    variable = is_yes;
    return true;
  };
  value.print = [&variable] { return std::string(variable ? "true" : "false"); };
  return value;
}

Value text(std::string& variable, std::string type) {
  Value value{Kind::kText, std::move(type), "", {}, {}};
  value.parse = [&variable](const std::string& given) {
    variable = given;
    return true;
  };
  value.print = [&variable] { return variable; };
  return value;
}

Value extent(int64_t& height, int64_t& width, int64_t most) {
  Value value{Kind::kExtent, "HxW", str("1 to ", most, " each"), {}, {}};
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
  value.print = [&height, &width] { return str(height, "x", width); };
  return value;
}

Value word(std::string& variable, const std::vector<std::string>& words) {
  Value value = choice(
      words, {}, [&variable, words](size_t i) { variable = words.at(i); }, [] { return size_t{0}; });
  value.print = [&variable] { return variable; };
  if (variable.empty()) {
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
  Value value{Kind::kText, std::move(type), "", {}, {}};
  value.parse = [&variable](const std::string& given) {
    variable.push_back(given);
    return true;
  };
  value.print = [&variable] { return join(variable); };
  return value;
}

Value choice(std::vector<std::string> names, std::vector<std::pair<std::string, size_t>> synonyms,
             std::function<void(size_t)> set, std::function<size_t()> get) {
  Value value{Kind::kChoice, "word", join(names), {}, {}};
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

}  // namespace vit_hybrid::options
