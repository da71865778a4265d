// Heap: settings of the C library's allocator for a program that makes and frees large tensors all the time.
#pragma once

namespace vit_hybrid {

/// Keeps freed memory in the process instead of giving it back to the system and faulting it in again, page by page,
/// for the next tensor (6 to 8 % of a training step on a CPU). To be called first in main(); does nothing outside of
/// glibc.
void keep_freed_memory();

}  // namespace vit_hybrid
