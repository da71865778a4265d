// The processors that this process may run on.
#pragma once

#include <vector>

namespace vit_hybrid {

/// Ascending numbers, as Linux has them: those that the calling thread is bound to, and all the places of OpenMP's
/// threads. Empty where the kernel does not say.
std::vector<int> allowed_processors();

/// Lets the calling thread run on any of allowed_processors(). A thread begins with the binding of the one that starts
/// it, and OMP_PROC_BIND binds that one to a core: what works beside it would only have what it leaves of that core.
void use_allowed_processors();

}  // namespace vit_hybrid
