// Partition: the one arithmetic of parts that every split in the program uses.
#pragma once

#include <cstdint>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid {

/// Half-open range of units [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return end == begin; }
  bool contains(int64_t unit) const { return unit >= begin && unit < end; }
  bool operator==(const Range&) const = default;
};

/// Splits `count` units over `parts`: part i is [floor(i count/parts), floor((i+1) count/parts)). Parts differ by at
/// most one unit, and parts over p are unions of parts over q whenever p divides q.
class Partition {
 public:
  Partition(int64_t count, int64_t parts) : count_(count), parts_(parts) {
    VH_ASSERT(count >= 0 && parts >= 1, str("count ", count, ", parts ", parts));
  }

  int64_t count() const { return count_; }
  int64_t parts() const { return parts_; }
  Range part(int64_t i) const { return {bound(i), bound(i + 1)}; }
  /// Size of the largest part.
  int64_t largest() const { return (count_ + parts_ - 1) / parts_; }
  /// The part that holds `unit`.
  int64_t owner(int64_t unit) const { return ((unit + 1) * parts_ - 1) / count_; }

 private:
  // i * count overflows only beyond 2^63 units times parts, far above any tensor.
  int64_t bound(int64_t i) const { return i * count_ / parts_; }

  int64_t count_;
  int64_t parts_;
};

}  // namespace vit_hybrid
