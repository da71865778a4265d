// Reading and writing of a range of steps.
#include "src/config/trace_steps.h"

#include <charconv>
#include <string_view>

#include "src/base/text.h"

namespace vit_hybrid::train {

std::string TraceSteps::text() const {
  return !any() ? "none" : first == last ? str("steps=", first) : str("steps=", first, "-", last);
}

std::optional<TraceSteps> TraceSteps::parse(const std::string& text) {
  constexpr std::string_view kHead = "steps=";
  if (text.empty() || text == "none" || text == "null" || text == "~") {
    return TraceSteps();
  }
  if (!text.starts_with(kHead)) {
    return std::nullopt;
  }
  TraceSteps steps;
  const char* const end = text.data() + text.size();
  auto read = std::from_chars(text.data() + kHead.size(), end, steps.first);
  steps.last = steps.first;
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
    read = std::from_chars(read.ptr + 1, end, steps.last);
  }
  const bool is_whole = read.ec == std::errc() && read.ptr == end;
  return is_whole && steps.first >= 1 && steps.first <= steps.last ? std::optional(steps) : std::nullopt;
}

options::Value step_range(TraceSteps& steps) {
  options::Value value{options::Kind::kText, "range", "steps=A-B, with 1 <= A <= B", {}, {}, "none"};
  value.parse = [&steps](const std::string& text) {
    const auto parsed = TraceSteps::parse(text);
    steps = parsed.value_or(steps);
    return parsed.has_value();
  };
  value.print = [&steps] { return steps.text(); };
  return value;
}

}  // namespace vit_hybrid::train
