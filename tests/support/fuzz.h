// A loop that gives a reader mutated files until its time is over; for programs fuzz_<reader> [SECONDS [FIRST]].
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace vit_hybrid::testing {

/// Calls `read(path)` for files with mutations of `seeds`, numbered from FIRST (0). The reader may succeed or throw an
/// Error that is no kInternal; anything else ends the program with the number of the mutation, to be run again as
/// `fuzz_<reader> 0 NUMBER`. Returns the exit code.
int fuzz(int argc, char** argv, const std::vector<std::string>& seeds,
         const std::function<void(const std::string& path)>& read);

}  // namespace vit_hybrid::testing
