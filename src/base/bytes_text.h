// bytes_text(): amounts of memory and of files for people.
#pragma once

#include <cstdint>
#include <string>

namespace vit_hybrid {

/// "1.50 GiB": three digits in the unit that suits.
std::string bytes_text(int64_t bytes);

}  // namespace vit_hybrid
