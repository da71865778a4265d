// MemoryTracker: every tensor byte of the process, by class, with peaks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

namespace vit_hybrid {

/// What tensor memory is for. kUntagged collects what no scope claimed; it stays zero in a run.
enum class MemoryClass : int {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kCommunication,
  kWorkspaces,
  kData,
  kUntagged,
};
inline constexpr int kNumMemoryClasses = 8;

/// Name of a class as it stands in summary.json.
std::string_view memory_class_name(MemoryClass memory_class);

/// Bytes by class.
struct MemoryReport {
  std::array<int64_t, kNumMemoryClasses> current{};
  std::array<int64_t, kNumMemoryClasses> peak{};     ///< of each class by itself
  std::array<int64_t, kNumMemoryClasses> at_peak{};  ///< of each class when the total was highest
  int64_t total_current = 0;
  int64_t total_peak = 0;
};

/// Counts the allocations of ATen's allocators (host and device) in the threads that are attached, by c10's memory
/// reporting hook. A block is charged to the class that was active where it was allocated, also when another attached
/// thread frees it.
class MemoryTracker {
 public:
  /// Counts allocations of the calling thread while it lives. Every thread that makes or frees tensors attaches.
  class Attachment {
   public:
    Attachment();
    ~Attachment();
    Attachment(const Attachment&) = delete;
    Attachment& operator=(const Attachment&) = delete;

   private:
    struct Guard;
    std::unique_ptr<Guard> guard_;
  };

  static MemoryReport report();
  /// Forgets the peaks (they become the current values), to measure one part of a run.
  static void reset_peaks();
};

/// Charges the allocations of this thread to `memory_class` while it lives; scopes nest, the innermost counts.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryClass memory_class);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryClass previous_;
};

}  // namespace vit_hybrid
