// KernelTable: which kernel computes what, found by measuring (autotuning); the same on all ranks of a mesh.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace vit_hybrid::kernels {

/// The time of a kernel that does not run.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// kBrief tells a kernel of half the speed from the others, kFull orders those that are nearly as fast.
enum class Effort { kBrief, kFull };

/// Number and microseconds of the fastest of `count` candidates that stand in the order in which a library expects them
/// to be: all of them measured briefly, then the few that were fastest in full. `measure` gives microseconds or kNever.
/// Where they take long, the last ones are not tried. {0, kNever} where none ran.
std::pair<size_t, double> fastest_candidate(size_t count,
                                            const std::function<double(size_t candidate, Effort effort)>& measure);

/// The kernel of one problem.
struct KernelChoice {
  std::string kernel;         ///< how it is asked for again: a name, or a library's own bytes (to_hex())
  std::string text;           ///< for people: "tile 128x256, 4 stages"
  double microseconds = 0.0;  ///< its time when it was chosen
  /// The time of the fastest kernel, also where that one was passed over because it adds in no fixed order.
  double fastest = 0.0;

  bool operator==(const KernelChoice&) const = default;
};

/// The fastest of `kernels` for `problem`, with all times and refusals in its text. Where `measure(number)` throws
/// because a library refuses, the next one is tried. What is no refusal goes on: missing memory, errors of this
/// program, and an error after which the device no longer works, which `synchronize` finds out by throwing:
/// Error(kInternal) with both reasons. Error(kInternal) with the reasons where none ran.
KernelChoice fastest_kernel(const std::string& problem, const std::vector<std::string>& kernels,
                            const std::function<double(size_t number)>& measure,
                            const std::function<void()>& synchronize);

/// Problems, by name, and their kernels. What was measured holds for one kind of device and one version of each
/// library, which `machine` names; libraries' bytes mean nothing to another version.
struct KernelTable {
  std::string machine;
  std::map<std::string, KernelChoice> choices;

  /// Null where nothing was chosen for it.
  const KernelChoice* find(const std::string& problem) const;
  /// Takes the choices of `saved`, which is of an earlier start of the run, for those of `problems` that it has. False,
  /// and nothing is taken, where it has some of another machine.
  bool adopt(const KernelTable& saved, const std::vector<std::string>& problems);
  /// How much longer `problems` (each as often as it is computed) take than they would with the fastest kernels:
  /// 0.02 is 2 %. Problems without a choice do not count.
  double cost(const std::vector<std::string>& problems) const;

  /// One line a choice, for checkpoints, run folders and other ranks; parse() gives an equal table back.
  std::string text() const;
  /// Error(kBadData) where `text` is no such text; an empty one is an empty table.
  static KernelTable parse(const std::string& text);

  bool operator==(const KernelTable&) const = default;
};

/// The choices of the process; empty, and of no machine, until something is measured or loaded.
KernelTable& kernel_table();

/// Bytes as hexadecimal text, and back; Error(kBadData) where the text is not `count` bytes.
std::string to_hex(const void* bytes, size_t count);
void from_hex(const std::string& text, void* bytes, size_t count);

}  // namespace vit_hybrid::kernels
