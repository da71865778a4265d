// Quantities for people: bytes, durations and numbers in as few digits as they read. Records keep all digits (text.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid {

/// "1.50 GiB": three digits in the unit that suits.
std::string bytes_text(int64_t bytes);

/// "0.35", "1.2e-05": at most `digits` significant digits, without trailing zeros;
/// "nan", "inf", "-inf".
std::string number_text(double value, int digits = 5);

/// "15.87 s", "2.6 min", "3.1 h", "2.4 days".
std::string duration_text(double seconds);

/// The same for a time that is only guessed: "43 s", "12 min", "3.1 h", "2.4 days".
std::string rough_duration_text(double seconds);

/// The parts of a whole, as "3 + 3 + 2"; of more than eight how often each size is there: "24 x 2 + 24 x 1".
std::string parts_text(const std::vector<int64_t>& parts);

}  // namespace vit_hybrid
