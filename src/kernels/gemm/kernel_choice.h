// KernelTable: which kernel computes what, where that was found by measuring; the same on all ranks of a mesh.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace vit_hybrid::kernels {

/// The kernel of one problem.
struct KernelChoice {
  std::string kernel;         ///< how it is asked for again: a name, or a library's own bytes (to_hex())
  std::string text;           ///< for people: "tile 128x256, 4 stages"
  double microseconds = 0.0;  ///< its time when it was chosen
  /// The time of the fastest kernel, also where that one was passed over because it adds in no fixed order.
  double fastest = 0.0;

  bool operator==(const KernelChoice&) const = default;
};

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
