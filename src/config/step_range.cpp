// Reading and writing of a range of steps.
#include "src/config/step_range.h"

#include <charconv>
#include <optional>

#include "src/base/text.h"

namespace vit_hybrid::train {

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

options::Value step_range(StepRange& steps, const std::string& head) {
  options::Value value{options::Kind::kText, "range", head + "A-B, with 1 <= A <= B", {}, {}, "none"};
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

}  // namespace vit_hybrid::train
