// The words for an allocation that failed.
#include "src/base/memory_failure.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <vector>

#include "src/base/quantity_text.h"
#include "src/base/text.h"

namespace vit_hybrid {

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
