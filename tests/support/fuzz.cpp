// The loop of fuzz programs.
#include "tests/support/fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>

#include "src/base/error.h"
#include "src/base/timer.h"
#include "tests/support/mutate.h"
#include "tests/support/scratch_folder.h"

namespace vit_hybrid::testing {

namespace {

// Why the outcome may not be; empty if it may.
std::string wrong_outcome(const std::function<void(const std::string& path)>& read, const std::string& path,
                          int64_t& num_read) {
  try {
    read(path);
    ++num_read;
    return "";
  } catch (const Error& error) {
    return error.error_class() == ErrorClass::kInternal ? error.what() : "";
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

}  // namespace

int fuzz(int argc, char** argv, const std::vector<std::string>& seeds,
         const std::function<void(const std::string& path)>& read) {
  const double seconds = argc > 1 ? std::strtod(argv[1], nullptr) : 10.0;
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const ScratchFolder folder;
  const std::string path = folder.file("mutated");
  const Timer timer;
  int64_t num_read = 0;
  uint64_t number = first;
  do {
    const std::string bytes = mutated(seeds[number % seeds.size()], number);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    const std::string wrong = wrong_outcome(read, path, num_read);
    if (!wrong.empty()) {
      std::fprintf(stderr, "mutation %llu: %s; it was\n%s\n", static_cast<unsigned long long>(number), wrong.c_str(),
                   bytes.c_str());
      return 1;
    }
    ++number;
  } while (timer.seconds() < seconds);
  std::printf("%llu mutated files, %lld of them still readable\n", static_cast<unsigned long long>(number - first),
              static_cast<long long>(num_read));
  return 0;
}

}  // namespace vit_hybrid::testing
