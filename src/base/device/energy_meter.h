// PackageEnergyMeter and GpuEnergyMeter: joules that the processors' packages and the GPUs took.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vit_hybrid {

/// Joules since the meter began, or why there are none.
struct Energy {
  std::optional<double> joules;
  std::string missing;  ///< the reason, where there are no joules
};

/// Energy of all processor packages of this machine by the kernel's powercap counters (Intel and AMD).
class PackageEnergyMeter {
 public:
  static constexpr const char* kCounters = "/sys/class/powercap";

  /// Begins. `folder`: where the counters are.
  explicit PackageEnergyMeter(const std::string& folder = kCounters);
  /// Counters wrap around within minutes at full load: to be called more often than that.
  Energy read();

 private:
  struct Package {
    std::string path;     // of the counter, in microjoules
    int64_t last = 0;     // its last reading
    int64_t range = 0;    // it starts again from 0 after this
    int64_t counted = 0;  // since the beginning
  };

  std::vector<Package> packages_;
  std::string missing_;
};

/// Energy of one GPU by the driver's library (NVML), which is looked for when the program runs.
class GpuEnergyMeter {
 public:
  /// Begins. `pci_address`: see device_pci_address(); empty: there is no GPU.
  explicit GpuEnergyMeter(const std::string& pci_address);
  ~GpuEnergyMeter();
  GpuEnergyMeter(const GpuEnergyMeter&) = delete;
  GpuEnergyMeter& operator=(const GpuEnergyMeter&) = delete;
  Energy read();

 private:
  class Nvml;
  std::unique_ptr<Nvml> nvml_;  // null where the energy cannot be read
  std::string missing_;
  double first_joules_ = 0.0;
};

}  // namespace vit_hybrid
