// This machine: its name, and the processors that this process may run on.
#pragma once

#include <unistd.h>

#include <array>
#include <string>
#include <vector>

namespace vit_hybrid {

/// As the system tells it, cut at 255 bytes; "host" where it tells none.
inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "host";
}

/// Ascending numbers, as Linux has them: those that the calling thread is bound to, and all the places of OpenMP's
/// threads. Empty where the kernel does not say.
std::vector<int> allowed_processors();

/// Lets the calling thread run on any of allowed_processors(). A thread begins with the binding of the one that starts
/// it, and OMP_PROC_BIND binds that one to a core: what works beside it would only have what it leaves of that core.
void use_allowed_processors();

}  // namespace vit_hybrid
