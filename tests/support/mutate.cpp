// Mutations of bytes.
#include "tests/support/mutate.h"

#include <algorithm>
#include <string_view>

#include "src/base/random.h"

namespace vit_hybrid::testing {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kTelling = "0123456789-+.eE\"'{}[](),:#&*!|>%@`\\ \t\n\r\0\x7f\xff\x80"sv;

// Draws numbers of one mutation.
class Draws {
 public:
  explicit Draws(uint64_t number) : stream_(1, Purpose::kTest, number) {}
  uint64_t below(uint64_t bound) { return stream_.below(bound, next_++); }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

void change(std::string& bytes, Draws& draws) {
  if (bytes.empty()) {
    bytes.push_back(static_cast<char>(draws.below(256)));
    return;
  }
  const size_t at = draws.below(bytes.size());
  const size_t length = std::min<size_t>(1 + draws.below(16), bytes.size() - at);
  switch (draws.below(8)) {
    case 0:
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1U << draws.below(8)));
      break;
    case 1:
      bytes[at] = static_cast<char>(draws.below(256));
      break;
    case 2:
      bytes[at] = kTelling[draws.below(kTelling.size())];
      break;
    case 3:
      bytes.erase(at, length);
      break;
    case 4:
      bytes.insert(at, bytes.substr(at, length));
      break;
    case 5:
      bytes.insert(draws.below(bytes.size()), bytes.substr(at, length));
      break;
    case 6:
      bytes.resize(at);
      break;
    default:
      bytes.insert(at, "99999999999999999999", 1 + draws.below(20));
  }
}

}  // namespace

std::string mutated(std::string bytes, uint64_t number) {
  Draws draws(number);
  for (uint64_t left = 1 + draws.below(4); left > 0; --left) {
    change(bytes, draws);
  }
  return bytes;
}

}  // namespace vit_hybrid::testing
