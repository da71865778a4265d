// Kernels by measuring: the fastest of several candidates, and what is made of one that does not run.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/kernels/gemm/kernel_choice.h"

namespace vit_hybrid::kernels {

/// kBrief tells a kernel of half the speed from the others, kFull orders those that are nearly as fast.
enum class Effort { kBrief, kFull };

/// A candidate by its number, and its time.
struct FastestCandidate {
  size_t candidate = 0;
  double microseconds = 0.0;

  bool operator==(const FastestCandidate&) const = default;
};

/// The fastest of `count` candidates that stand in the order in which a library expects them to be: all of them
/// measured briefly, then the few that were fastest in full. `measure(candidate, effort)` gives microseconds, or
/// nothing for a candidate that does not run, which is passed over. Where they take long, the last ones are not tried.
/// Nothing where none ran.
std::optional<FastestCandidate> fastest_candidate(
    size_t count, const std::function<std::optional<double>(size_t candidate, Effort effort)>& measure);

/// Time of a kernel, or why it did not run.
struct KernelTime {
  double microseconds = std::numeric_limits<double>::infinity();
  std::string refusal;  ///< of one line; empty where it ran

  bool operator==(const KernelTime&) const = default;
};

/// What `measure` gives or, where it throws because a library refuses, the reason. What is no refusal goes on: missing
/// memory, errors of this program, and an error after which the device no longer works, which `synchronize` finds out
/// by throwing: Error(kInternal) with both reasons.
KernelTime time_or_refusal(const std::function<double()>& measure, const std::function<void()>& synchronize);

/// The choice for `problem` among kernels, by name, with all times and refusals in its text, and kernel time and
/// fastest time the same. Error(kInternal) with the reasons where none ran.
KernelChoice fastest_kernel(const std::string& problem, const std::vector<std::pair<std::string, KernelTime>>& times);

}  // namespace vit_hybrid::kernels
