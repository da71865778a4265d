// PackageEnergyMeter: /sys/class/powercap/intel-rapl:N/energy_uj, which AMD processors have under the same name.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "src/base/device/energy_meter.h"
#include "src/base/text.h"

namespace vit_hybrid {

namespace {

namespace fs = std::filesystem;

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The zones of whole packages; of their parts (cores, memory) and of the platform the names are others.
std::vector<std::string> package_folders(const std::string& folder) {
  std::vector<std::string> result;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (first_line_of(entry.path().string() + "/name").starts_with("package")) {
      result.push_back(entry.path().string());
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

PackageEnergyMeter::PackageEnergyMeter(const std::string& folder) {
  for (const std::string& package : package_folders(folder)) {
    const std::string path = package + "/energy_uj";
    errno = 0;
    const auto first = number_in(path);
    const auto range = number_in(package + "/max_energy_range_uj");
    if (!first || !range) {
      missing_ = str(path, " cannot be read by this user", errno != 0 ? str(" (", std::strerror(errno), ")") : "");
      packages_.clear();
      return;
    }
    packages_.push_back({path, *first, *range});
  }
  if (packages_.empty()) {
    missing_ = str("no processor's energy counter in ", folder);
  }
}

Energy PackageEnergyMeter::read() {
  int64_t sum = 0;
  for (Package& package : packages_) {
    const auto now = number_in(package.path);
    if (!now) {
      missing_ = package.path + " cannot be read any more";
      packages_.clear();
      break;
    }
    package.counted += *now - package.last + (*now < package.last ? package.range : 0);
    package.last = *now;
    sum += package.counted;
  }
  if (packages_.empty()) {
    return {std::nullopt, missing_};
  }
  return {static_cast<double>(sum) * 1e-6, {}};
}

}  // namespace vit_hybrid
