// What is made of the times of kernels, and the table of choices with its text.
#include "src/kernels/gemm/kernel_choice.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

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

// After an illegal address or a failed launch every later call fails too, far from its cause.
void check_device(const std::function<void()>& synchronize, const std::string& reason) {
  try {
    synchronize();
  } catch (const std::exception& after) {
    throw Error(ErrorClass::kInternal,
                str("a kernel that was tried left the device broken: ", reason, "; then: ", reason_of(after)));
  }
}

}  // namespace

std::optional<FastestCandidate> fastest_candidate(
    size_t count, const std::function<std::optional<double>(size_t candidate, Effort effort)>& measure) {
  std::vector<FastestCandidate> ranked;
  double spent = 0.0;
  for (size_t i = 0; i < count && (ranked.size() < kAlwaysTried || spent < kMostBriefMicroseconds); ++i) {
    if (const auto microseconds = measure(i, Effort::kBrief)) {
      ranked.push_back({i, *microseconds});
      spent += kBriefCalls * *microseconds;
    }
  }
  const auto is_faster = [](const FastestCandidate& a, const FastestCandidate& b) {
    return a.microseconds < b.microseconds;
  };
  std::stable_sort(ranked.begin(), ranked.end(), is_faster);
  std::optional<FastestCandidate> fastest;
  for (size_t i = 0; i < std::min(ranked.size(), kFinalists); ++i) {
    const auto microseconds = measure(ranked[i].candidate, Effort::kFull);
    if (microseconds && (!fastest || *microseconds < fastest->microseconds)) {
      fastest = {ranked[i].candidate, *microseconds};
    }
  }
  return fastest;
}

KernelTime time_or_refusal(const std::function<double()>& measure, const std::function<void()>& synchronize) {
  KernelTime time;
  try {
    time.microseconds = measure();
    return time;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& exception) {
    if (is_missing_memory(exception)) {
      throw;
    }
    time.refusal = reason_of(exception);
  }
  check_device(synchronize, time.refusal);
  return time;
}

KernelChoice fastest_kernel(const std::string& problem, const std::vector<std::pair<std::string, KernelTime>>& times) {
  KernelChoice choice;
  choice.microseconds = std::numeric_limits<double>::infinity();
  std::vector<std::string> texts;
  for (const auto& [kernel, time] : times) {
    const bool ran = time.refusal.empty();
    texts.push_back(ran ? str(kernel, " ", std::round(time.microseconds), " us")
                        : str(kernel, " does not run: ", time.refusal));
    if (ran && time.microseconds < choice.microseconds) {
      choice.kernel = kernel;
      choice.microseconds = time.microseconds;
    }
  }
  choice.text = join(texts);
  if (choice.kernel.empty()) {
    throw Error(ErrorClass::kInternal, str(problem, ": no kernel ran: ", choice.text));
  }
  choice.fastest = choice.microseconds;
  return choice;
}

namespace {

constexpr std::string_view kHead = "vit_hybrid kernels 1";
constexpr size_t kFields = 5;

[[noreturn]] void refuse(size_t line, const std::string& why) {
  throw Error(ErrorClass::kBadData, str("saved kernel choices, line ", line, ": ", why),
              "give --retune to measure the kernels again");
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) {
    fields.push_back(field);
  }
  return fields;
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

int digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

const KernelChoice* KernelTable::find(const std::string& problem) const {
  const auto found = choices_.find(problem);
  return found == choices_.end() ? nullptr : &found->second;
}

void KernelTable::choose(const std::string& problem, KernelChoice choice) {
  choices_.insert_or_assign(problem, std::move(choice));
}

void KernelTable::forget(const std::string& problem) {
  choices_.erase(problem);
}

std::vector<std::string> KernelTable::missing(std::span<const std::string> problems) const {
  std::vector<std::string> result;
  std::set<std::string> seen;
  for (const std::string& problem : problems) {
    if (find(problem) == nullptr && seen.insert(problem).second) {
      result.push_back(problem);
    }
  }
  return result;
}

KernelTable::Adopted KernelTable::adopt(const KernelTable& saved, std::span<const std::string> problems) {
  if (saved.choices_.empty()) {
    return Adopted::kNothingSaved;
  }
  if (saved.machine_ != machine_) {
    return Adopted::kOtherMachine;
  }
  for (const std::string& problem : problems) {
    if (const KernelChoice* const choice = saved.find(problem); choice != nullptr) {
      choose(problem, *choice);
    }
  }
  return Adopted::kAll;
}

double KernelTable::cost(std::span<const std::string> problems) const {
  double chosen = 0.0, fastest = 0.0;
  for (const std::string& problem : problems) {
    if (const KernelChoice* choice = find(problem)) {
      chosen += choice->microseconds;
      fastest += choice->fastest;
    }
  }
  return fastest > 0.0 ? chosen / fastest - 1.0 : 0.0;
}

std::string KernelTable::text() const {
  std::ostringstream out;
  out << kHead << "\n" << machine_ << "\n";
  for (const auto& [problem, choice] : choices_) {
    out << problem << '\t' << choice.kernel << '\t' << choice.text << '\t' << digits(choice.microseconds) << '\t'
        << digits(choice.fastest) << '\n';
  }
  return out.str();
}

KernelTable KernelTable::parse(const std::string& text) {
  if (text.empty()) {
    return {};
  }
  std::istringstream in(text);
  std::string line;
  if (!std::getline(in, line) || line != kHead) {
    refuse(1, str("'", line, "' is not '", kHead, "'"));
  }
  if (!std::getline(in, line)) {
    refuse(2, "the machine is missing");
  }
  KernelTable table(line);
  for (size_t number = 3; std::getline(in, line); ++number) {
    const auto fields = fields_of(line);
    if (fields.size() != kFields) {
      refuse(number, str(fields.size(), " fields instead of ", kFields));
    }
    table.choose(fields[0], {fields[1], fields[2], parse_time(fields[3], number), parse_time(fields[4], number)});
  }
  return table;
}

std::string to_hex(const void* bytes, size_t count) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto* const values = static_cast<const unsigned char*>(bytes);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[values[i] >> 4];
    text += kDigits[values[i] & 15];
  }
  return text;
}

void from_hex(const std::string& text, void* bytes, size_t count) {
  auto* const values = static_cast<unsigned char*>(bytes);
  bool is_right = text.size() == 2 * count;
  for (size_t i = 0; is_right && i < count; ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    is_right = high >= 0 && low >= 0;
    values[i] = static_cast<unsigned char>(high * 16 + low);
  }
  if (!is_right) {
    throw Error(ErrorClass::kBadData, str("'", text, "' is not ", count, " bytes in hexadecimal digits"),
                "give --retune to measure the kernels again");
  }
}

}  // namespace vit_hybrid::kernels
