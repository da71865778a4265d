// PackageEnergyMeter and GpuMeter: joules that the processors' packages and the GPUs took, and how GPUs are used.
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

/// How a GPU is used at the moment; what the driver does not tell is missing.
struct GpuUsage {
  std::optional<double> utilisation;         ///< percent of the driver's last period in which a kernel ran
  std::optional<double> memory_utilisation;  ///< the same, in which its memory was read or written
  std::optional<int64_t> memory_bytes;       ///< taken by all processes
};

/// One GPU, and how many there are, by the driver's library (NVML), which is looked for when the program runs.
class GpuMeter {
 public:
  /// Begins. `pci_address`: see device_pci_address(); empty: there is no GPU.
  explicit GpuMeter(const std::string& pci_address);
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;
  Energy read();
  /// By a driver that cannot be asked nothing is known.
  GpuUsage usage() const;

  /// GPUs of this machine, also those that this process may not use; 0 where the driver cannot be asked.
  static int num_on_machine();

 private:
  class Nvml;
  std::unique_ptr<Nvml> nvml_;  // null where the driver cannot be asked
  std::string missing_;         // why there is no energy
  std::optional<double> first_joules_;
};

}  // namespace vit_hybrid
