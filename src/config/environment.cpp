// Environment variables as a source of settings.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "src/base/utf8.h"
#include "src/config/sources.h"

namespace vit_hybrid::options {

namespace {
constexpr std::string_view kPrefix = "VIT_HYBRID_";
constexpr std::string_view kTestPrefix = "VIT_HYBRID_TEST_";
}  // namespace

Source parse_environment(const std::vector<std::string>& environment) {
  Source source;
  for (const std::string& variable : environment) {
    const size_t cut = variable.find('=');
    if (cut == std::string::npos || !variable.starts_with(kPrefix) || variable.starts_with(kTestPrefix)) {
      continue;
    }
    std::string name = variable.substr(kPrefix.size(), cut - kPrefix.size());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    source.push_back(
        {name, variable.substr(cut + 1), Place::kEnvironment, "environment " + shown(variable.substr(0, cut))});
  }
  std::sort(source.begin(), source.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return source;
}

std::vector<std::string> process_environment() {
  std::vector<std::string> out;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    out.emplace_back(*variable);
  }
  return out;
}

}  // namespace vit_hybrid::options
