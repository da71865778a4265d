// MemoryTracker: which class of memory holds how many bytes, of the host and of devices, and what is said where there
// was not enough.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
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
  kPackedWeights,  ///< copies of weights in the forms that a kernel multiplies by
  kData,
  kUntagged,
};
inline constexpr int kNumMemoryClasses = 9;

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

/// An allocation that an allocator could not make, and what was held when it was asked for.
struct MemoryFailure {
  int64_t bytes = 0;  ///< asked for
  MemoryClass memory_class = MemoryClass::kUntagged;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  int64_t unused_bytes = 0;  ///< that the allocator kept of the device in blocks which did not fit
  MemoryReport held;
};

/// Counts the allocations of ATen's allocators (host and device) in the threads that are attached, by c10's memory
/// reporting hook. A block is charged to the class that was active where it was allocated, also when another attached
/// thread frees it. The threads in which autograd runs a backward pass for the first attached one belong to it: their
/// blocks are charged to the class that is active there.
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
    bool leads_;
  };

  static MemoryReport report();
  /// The last allocation that failed in an attached thread. Memory that an error frees on its way is still in it.
  static std::optional<MemoryFailure> last_failure();
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

/// Whether a library's words are of memory that it did not get, on the host or on a device.
bool tells_of_memory(const std::string& text);
/// Whether an exception is of that: by its type, or by its words.
bool is_missing_memory(const std::exception& exception);

/// "out of memory: 1.50 GiB were asked for activations on cuda:0, which has 79.1 GiB; held are ...", by class, the
/// largest first. `device_bytes` is the memory of the device; 0 where it is not known. Pure.
std::string memory_failure_text(const MemoryFailure& failure, int64_t device_bytes);

}  // namespace vit_hybrid
