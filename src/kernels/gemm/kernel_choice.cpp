// What is made of the times of kernels, and the table of choices with its text.
#include "src/kernels/gemm/kernel_choice.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <sstream>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::kernels {

namespace {

constexpr size_t kFinalists = 4;
// Of those that come first so many are always tried; more while all together took less than this. A candidate runs
// three times when it is measured briefly.
constexpr size_t kAlwaysTried = 8;
constexpr double kMostBriefMicroseconds = 1e5;
constexpr double kBriefCalls = 3.0;
constexpr size_t kMostReason = 160;

// The first line, without a library's stack, as a field of the table's text.
std::string reason_of(const std::exception& exception) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&exception);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : exception.what();
  std::string line = text.substr(0, std::min(text.find('\n'), kMostReason));
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line.empty() ? "without a reason" : line;
}

// Of a kernel that a library refuses kNever and the reason.
double time_or_never(const std::function<double()>& measure, const std::function<void()>& synchronize,
                     std::string& refusal) {
  try {
    return measure();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& exception) {
    if (is_missing_memory(exception)) {
      throw;
    }
    refusal = reason_of(exception);
  }
  try {  // after an illegal address or a failed launch every later call fails too, far from its cause
    synchronize();
  } catch (const std::exception& after) {
    throw Error(ErrorClass::kInternal,
                str("a kernel that was tried left the device broken: ", refusal, "; then: ", reason_of(after)));
  }
  return kNever;
}

constexpr const char* kHead = "vit_hybrid kernels 1";
constexpr const char* kRetune = "give --retune to measure the kernels again";

[[noreturn]] void refuse(size_t line, const std::string& why) {
  throw Error(ErrorClass::kBadData, str("saved kernel choices, line ", line, ": ", why), kRetune);
}

double parse_time(const std::string& text, size_t line) {
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || last != end || !(value >= 0.0)) {
    refuse(line, str("'", text, "' is no time in microseconds"));
  }
  return value;
}

}  // namespace

std::pair<size_t, double> fastest_candidate(size_t count,
                                            const std::function<double(size_t candidate, Effort effort)>& measure) {
  std::vector<std::pair<double, size_t>> ranked;
  double spent = 0.0;
  for (size_t i = 0; i < count && (ranked.size() < kAlwaysTried || spent < kMostBriefMicroseconds); ++i) {
    if (const double microseconds = measure(i, Effort::kBrief); std::isfinite(microseconds)) {
      ranked.emplace_back(microseconds, i);
      spent += kBriefCalls * microseconds;
    }
  }
  std::sort(ranked.begin(), ranked.end());
  std::pair<size_t, double> fastest{0, kNever};
  for (size_t i = 0; i < std::min(ranked.size(), kFinalists); ++i) {
    const size_t candidate = ranked[i].second;
    if (const double microseconds = measure(candidate, Effort::kFull); microseconds < fastest.second) {
      fastest = {candidate, microseconds};
    }
  }
  return fastest;
}

KernelChoice fastest_kernel(const std::string& problem, const std::vector<std::string>& kernels,
                            const std::function<double(size_t number)>& measure,
                            const std::function<void()>& synchronize) {
  KernelChoice choice{"", "", kNever, kNever};
  std::vector<std::string> texts;
  for (size_t i = 0; i < kernels.size(); ++i) {
    std::string refusal;
    const double microseconds = time_or_never([&] { return measure(i); }, synchronize, refusal);
    texts.push_back(refusal.empty() ? str(kernels[i], " ", std::round(microseconds), " us")
                                    : str(kernels[i], " does not run: ", refusal));
    if (microseconds < choice.microseconds) {
      choice = {kernels[i], "", microseconds, microseconds};
    }
  }
  choice.text = join(texts);
  if (choice.kernel.empty()) {
    throw Error(ErrorClass::kInternal, str(problem, ": no kernel ran: ", choice.text));
  }
  return choice;
}

const KernelChoice* KernelTable::find(const std::string& problem) const {
  const auto found = choices.find(problem);
  return found == choices.end() ? nullptr : &found->second;
}

bool KernelTable::adopt(const KernelTable& saved, const std::vector<std::string>& problems) {
  if (!saved.choices.empty() && saved.machine != machine) {
    return false;
  }
  for (const std::string& problem : problems) {
    if (const KernelChoice* const choice = saved.find(problem)) {
      choices[problem] = *choice;
    }
  }
  return true;
}

double KernelTable::cost(const std::vector<std::string>& problems) const {
  double chosen = 0.0, fastest = 0.0;
  for (const std::string& problem : problems) {
    if (const KernelChoice* const choice = find(problem)) {
      chosen += choice->microseconds;
      fastest += choice->fastest;
    }
  }
  return fastest > 0.0 ? chosen / fastest - 1.0 : 0.0;
}

KernelTable& kernel_table() {
  static KernelTable table;
  return table;
}

std::string KernelTable::text() const {
  std::ostringstream out;
  out << kHead << "\n" << machine << "\n";
  for (const auto& [problem, choice] : choices) {
    out << problem << '\t' << choice.kernel << '\t' << choice.text << '\t' << digits(choice.microseconds) << '\t'
        << digits(choice.fastest) << '\n';
  }
  return out.str();
}

KernelTable KernelTable::parse(const std::string& text) {
  KernelTable table;
  if (text.empty()) {
    return table;
  }
  std::istringstream in(text);
  std::string line;
  if (!std::getline(in, line) || line != kHead) {
    refuse(1, str("'", line, "' is not '", kHead, "'"));
  }
  if (!std::getline(in, table.machine)) {
    refuse(2, "the machine is missing");
  }
  for (size_t number = 3; std::getline(in, line); ++number) {
    std::vector<std::string> fields;
    std::istringstream words(line);
    for (std::string field; std::getline(words, field, '\t');) {
      fields.push_back(field);
    }
    if (fields.size() != 5) {
      refuse(number, str(fields.size(), " fields instead of 5"));
    }
    table.choices[fields[0]] = {fields[1], fields[2], parse_time(fields[3], number), parse_time(fields[4], number)};
  }
  return table;
}

std::string to_hex(const void* bytes, size_t count) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const unsigned value = static_cast<const unsigned char*>(bytes)[i];
    text += {kDigits[value / 16], kDigits[value % 16]};
  }
  return text;
}

void from_hex(const std::string& text, void* bytes, size_t count) {
  for (size_t i = 0; i < std::min(count, text.size() / 2); ++i) {
    std::from_chars(&text[2 * i], &text[2 * i] + 2, static_cast<unsigned char*>(bytes)[i], 16);
  }
  if (to_hex(bytes, count) != text) {
    throw Error(ErrorClass::kBadData, str("'", text, "' is not ", count, " bytes in hexadecimal digits"), kRetune);
  }
}

}  // namespace vit_hybrid::kernels
