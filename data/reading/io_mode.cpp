// The text of MPI-IO hints.
#include "data/reading/io_mode.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

MpiIoHints parse_mpiio_hints(const std::string& text) {
  constexpr size_t kMostKey = 255;  // characters of a key of MPI_Info, by the standard's least guarantee
  MpiIoHints hints;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals > kMostKey || equals + 1 == word.size()) {
      throw Error(ErrorClass::kUsage, str("'", word, "' is no hint"), "hints are key=value,key=value,...");
    }
    hints.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    begin = end + 1;
  }
  return hints;
}

}  // namespace vit_hybrid::data
