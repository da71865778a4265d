// The name of this machine.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace vit_hybrid {

/// As the system tells it, cut at 255 bytes; "host" where it tells none.
inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "host";
}

}  // namespace vit_hybrid
