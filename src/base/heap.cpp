// Heap: mallopt().
#include "src/base/heap.h"

#include <cstdlib>  // defines __GLIBC__ where it is glibc

#if defined(__GLIBC__)
#include <malloc.h>

#include <limits>
#endif

namespace vit_hybrid {

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kLargestFromHeap = 1 << 30;  // larger blocks get a mapping of their own
  constexpr int kGrowth = 64 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargestFromHeap);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, kGrowth);
#endif
}

}  // namespace vit_hybrid
