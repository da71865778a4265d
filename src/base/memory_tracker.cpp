// c10's memory reporting hook, and the words of missing memory.
#include "src/base/memory_tracker.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "src/base/text.h"

namespace vit_hybrid {

namespace {

thread_local MemoryClass active_class = MemoryClass::kUntagged;
thread_local int num_attachments = 0;

// The first attached thread, for which others may compute without being attached themselves.
std::atomic<bool> has_leader = false;
thread_local bool leads = false;
std::atomic<MemoryClass> leaders_class = MemoryClass::kUntagged;

void set_active(MemoryClass memory_class) {
  active_class = memory_class;
  if (leads) {
    leaders_class = memory_class;
  }
}

MemoryClass class_of_this_thread() {
  return num_attachments > 0 ? active_class : leaders_class.load();
}

class Counters : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* ptr, int64_t alloc_size, size_t /*total_allocated*/, size_t /*total_reserved*/,
                         c10::Device /*device*/) override {
    const std::lock_guard lock(mutex_);
    if (alloc_size > 0) {
      allocate(ptr, alloc_size);
    } else {
      release(ptr);
    }
  }

  void reportOutOfMemory(int64_t alloc_size, size_t total_allocated, size_t total_reserved,
                         c10::Device device) override {
    const std::lock_guard lock(mutex_);
    const auto unused = static_cast<int64_t>(total_reserved) - static_cast<int64_t>(total_allocated);
    failure_ = MemoryFailure{alloc_size, class_of_this_thread(), device, std::max<int64_t>(unused, 0), report_};
  }

  bool memoryProfilingEnabled() const override { return true; }

  std::optional<MemoryFailure> last_failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  MemoryReport report() const {
    const std::lock_guard lock(mutex_);
    return report_;
  }

  void reset_peaks() {
    const std::lock_guard lock(mutex_);
    report_.peak = report_.current;
    report_.at_peak = report_.current;
    report_.total_peak = report_.total_current;
  }

 private:
  struct Block {
    int64_t size;
    size_t memory_class;
  };

  void allocate(void* ptr, int64_t size) {
    const auto memory_class = static_cast<size_t>(class_of_this_thread());
    blocks_[ptr] = {size, memory_class};
    report_.current[memory_class] += size;
    report_.peak[memory_class] = std::max(report_.peak[memory_class], report_.current[memory_class]);
    report_.total_current += size;
    if (report_.total_current > report_.total_peak) {
      report_.total_peak = report_.total_current;
      report_.at_peak = report_.current;
    }
  }

  // A block that was allocated before its thread attached is not known and not counted.
  void release(void* ptr) {
    const auto found = blocks_.find(ptr);
    if (found == blocks_.end()) {
      return;
    }
    report_.current[found->second.memory_class] -= found->second.size;
    report_.total_current -= found->second.size;
    blocks_.erase(found);
  }

  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  MemoryReport report_;
  std::optional<MemoryFailure> failure_;
};

// Never destroyed: tensors with static storage are freed after it would be.
const std::shared_ptr<Counters>& counters() {
  static const auto* instance = new std::shared_ptr<Counters>(std::make_shared<Counters>());
  return *instance;
}

}  // namespace

std::string_view memory_class_name(MemoryClass memory_class) {
  constexpr std::array<std::string_view, kNumMemoryClasses> kNames = {"parameters",     "gradients",     "optimizer",
                                                                      "activations",    "communication", "workspaces",
                                                                      "packed_weights", "data",          "untagged"};
  return kNames[static_cast<size_t>(memory_class)];
}

struct MemoryTracker::Attachment::Guard {
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counters()};
};

MemoryTracker::Attachment::Attachment() : guard_(std::make_unique<Guard>()), leads_(!has_leader.exchange(true)) {
  ++num_attachments;
  if (leads_) {
    leads = true;
    leaders_class = active_class;
  }
}

MemoryTracker::Attachment::~Attachment() {
  --num_attachments;
  if (leads_) {
    leads = false;
    leaders_class = MemoryClass::kUntagged;
    has_leader = false;
  }
}

MemoryReport MemoryTracker::report() {
  return counters()->report();
}
std::optional<MemoryFailure> MemoryTracker::last_failure() {
  return counters()->last_failure();
}
void MemoryTracker::reset_peaks() {
  counters()->reset_peaks();
}

MemoryScope::MemoryScope(MemoryClass memory_class) : previous_(active_class) {
  set_active(memory_class);
}
MemoryScope::~MemoryScope() {
  set_active(previous_);
}

bool tells_of_memory(const std::string& text) {
  // LibTorch's, CUDA's, and the last two NCCL's.
  constexpr std::array kWords = {"allocate memory", "out of memory", "Failed to CUDA calloc", "Failed to CUDA malloc"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](const char* words) { return text.find(words) != std::string::npos; });
}

bool is_missing_memory(const std::exception& exception) {
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&exception) != nullptr) {
    return true;
  }
  // A stack may hold the words too.
  const auto* const torch = dynamic_cast<const c10::Error*>(&exception);
  return tells_of_memory(torch != nullptr ? torch->what_without_backtrace() : exception.what());
}

std::string memory_failure_text(const MemoryFailure& failure, int64_t device_bytes) {
  std::array<size_t, kNumMemoryClasses> order{};
  std::iota(order.begin(), order.end(), size_t{0});
  const auto& held = failure.held.current;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return held[a] > held[b]; });
  std::vector<std::string> classes;
  for (const size_t i : order) {
    if (held[i] > 0) {
      classes.push_back(str(memory_class_name(static_cast<MemoryClass>(i)), " ", bytes_text(held[i])));
    }
  }
  return str(
      "out of memory: ", bytes_text(failure.bytes), " were asked for ", memory_class_name(failure.memory_class), " on ",
      failure.device.str(), device_bytes > 0 ? ", which has " + bytes_text(device_bytes) : "", "; held are ",
      bytes_text(failure.held.total_current), classes.empty() ? "" : " (" + join(classes) + ")",
      failure.unused_bytes > 0 ? ", and " + bytes_text(failure.unused_bytes) + " in pieces that do not fit" : "");
}

}  // namespace vit_hybrid
