// Mutations of bytes for tests of readers: a function of the number of the mutation alone.
#pragma once

#include <cstdint>
#include <string>

namespace vit_hybrid::testing {

/// `bytes` with one to four changes: bits flipped, bytes replaced (also by digits, quotes, brackets and their like),
/// pieces removed, doubled, moved or cut off at the end, and lengths made huge.
std::string mutated(std::string bytes, uint64_t number);

}  // namespace vit_hybrid::testing
