// GpuEnergyMeter: four functions of the NVIDIA driver's library, which is opened at run time.
#include <dlfcn.h>

#include "src/base/device/energy_meter.h"
#include "src/base/text.h"

namespace vit_hybrid {

// The library's C interface, as far as it is used: a result of 0 is success.
class GpuEnergyMeter::Nvml {
 public:
  // Null, and `missing` says why, where the GPU's energy cannot be read.
  static std::unique_ptr<Nvml> open(const std::string& pci_address, std::string& missing) {
    auto nvml = std::make_unique<Nvml>();
    missing = nvml->start(pci_address);
    return missing.empty() ? std::move(nvml) : nullptr;
  }

  Nvml() = default;
  ~Nvml() {
    if (shutdown_ != nullptr) shutdown_();
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::optional<double> joules() const {
    unsigned long long millijoules = 0;
    if (total_energy_(device_, &millijoules) != 0) {
      return std::nullopt;
    }
    return static_cast<double>(millijoules) * 1e-3;
  }

 private:
  using Device = void*;

  template <class Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }

  // What is missing; nothing where all is well.
  std::string start(const std::string& pci_address) {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      return "the driver's libnvidia-ml.so.1 is not there";
    }
    int (*init)() = nullptr;
    int (*shutdown)() = nullptr;
    int (*device_of)(const char*, Device*) = nullptr;
    if (!find(init, "nvmlInit_v2") || !find(shutdown, "nvmlShutdown") ||
        !find(device_of, "nvmlDeviceGetHandleByPciBusId_v2") ||
        !find(total_energy_, "nvmlDeviceGetTotalEnergyConsumption")) {
      return "the driver's libnvidia-ml.so.1 has no energy counters";
    }
    if (const int result = init(); result != 0) {
      return str("nvmlInit_v2 failed with ", result);
    }
    shutdown_ = shutdown;
    if (const int result = device_of(pci_address.c_str(), &device_); result != 0) {
      return str("NVML does not know the GPU ", pci_address, " (", result, ")");
    }
    return joules() ? "" : str("the GPU ", pci_address, " has no energy counter");
  }

  void* library_ = nullptr;
  int (*shutdown_)() = nullptr;
  int (*total_energy_)(Device, unsigned long long*) = nullptr;
  Device device_ = nullptr;
};

GpuEnergyMeter::GpuEnergyMeter(const std::string& pci_address) {
  if (pci_address.empty()) {
    missing_ = "no GPU is used";
    return;
  }
  nvml_ = Nvml::open(pci_address, missing_);
  first_joules_ = nvml_ ? nvml_->joules().value_or(0.0) : 0.0;
}

GpuEnergyMeter::~GpuEnergyMeter() = default;

Energy GpuEnergyMeter::read() {
  if (!nvml_) {
    return {std::nullopt, missing_};
  }
  const auto now = nvml_->joules();
  return now ? Energy{*now - first_joules_, {}} : Energy{std::nullopt, "the GPU's energy counter failed"};
}

}  // namespace vit_hybrid
