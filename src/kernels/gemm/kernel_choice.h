// KernelTable: which kernel computes what, found by measuring (autotuning); the same on all ranks of a mesh.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

/// The kernel of one problem.
struct KernelChoice {
  std::string kernel;         ///< how it is asked for again: a name, or a library's own bytes (to_hex())
  std::string text;           ///< for people: "tile 128x256, 4 stages"
  double microseconds = 0.0;  ///< its time when it was chosen
  /// The time of the fastest kernel, also where that one was passed over because it adds in no fixed order.
  double fastest = 0.0;

  bool operator==(const KernelChoice&) const = default;
};

/// The choice for `problem` among kernels, by name, with all times and refusals in its text, and kernel time and
/// fastest time the same. Error(kInternal) with the reasons where none ran.
KernelChoice fastest_kernel(const std::string& problem, const std::vector<std::pair<std::string, KernelTime>>& times);

/// Problems, by name, and their kernels. A pure value. What was measured holds for one kind of device and one version
/// of each library, which `machine` names; libraries' bytes mean nothing to another version.
class KernelTable {
 public:
  KernelTable() = default;
  explicit KernelTable(std::string machine) : machine_(std::move(machine)) {}

  const std::string& machine() const { return machine_; }
  const std::map<std::string, KernelChoice>& choices() const { return choices_; }
  /// Null where nothing was chosen for it.
  const KernelChoice* find(const std::string& problem) const;
  void choose(const std::string& problem, KernelChoice choice);
  /// Does nothing where nothing was chosen for it.
  void forget(const std::string& problem);
  /// The problems without a choice, each once, in their order.
  std::vector<std::string> missing(std::span<const std::string> problems) const;

  /// What came of adopt(), for the start-up report.
  enum class Adopted { kAll, kNothingSaved, kOtherMachine };
  /// Takes the choices of `saved`, which is of an earlier start of the run, for those of `problems` that it has, unless
  /// it is of another machine.
  Adopted adopt(const KernelTable& saved, std::span<const std::string> problems);

  /// How much longer `problems` (each as often as it is computed) take than they would with the fastest kernels:
  /// 0.02 is 2 %. Problems without a choice do not count.
  double cost(std::span<const std::string> problems) const;

  /// One line a choice, for checkpoints, run folders and other ranks; parse() gives an equal table back.
  std::string text() const;
  /// Error(kBadData) where `text` is no such text; an empty one is an empty table.
  static KernelTable parse(const std::string& text);

  bool operator==(const KernelTable&) const = default;

 private:
  std::string machine_;
  std::map<std::string, KernelChoice> choices_;
};

/// Bytes as hexadecimal text, and back; Error(kBadData) where the text is not `count` bytes.
std::string to_hex(const void* bytes, size_t count);
void from_hex(const std::string& text, void* bytes, size_t count);

}  // namespace vit_hybrid::kernels
