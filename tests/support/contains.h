// contains(): whether a text has a part, for tests of messages.
#pragma once

#include <string>

namespace vit_hybrid::testing {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace vit_hybrid::testing
