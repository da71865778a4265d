// What is made of the times of kernels, without a device.
#include "src/kernels/gemm/kernel_timing.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "src/base/error.h"
#include "src/base/memory_failure.h"
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

}  // namespace vit_hybrid::kernels
