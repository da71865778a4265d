// Energy of packages from /sys/class/powercap/intel-rapl:N/energy_uj, which AMD processors have under the same name,
// and of GPUs from NVML, which is loaded where it is there.
#include "src/base/device/energy_meter.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostMeterBytes = 64;             // of a counter, or of a name
constexpr int64_t kMostCounted = int64_t{1} << 60;  // microjoules: of a kilowatt those of 36 years

// A counter in a file. Nothing, and the problem, where it is none that can be read.
std::optional<int64_t> counter_in(const std::string& path, std::string& problem) {
  try {
    const std::string text = read_regular_file(path, kMostMeterBytes);
    int64_t value = -1;
    const char* const end = text.data() + text.size();
    const char* const after = std::from_chars(text.data(), end, value).ptr;
    if (value >= 0 && value <= kMostCounted && (after == end || *after == '\n')) {
      return value;
    }
    problem = str(path, " holds no counter: '", shown(text.substr(0, text.find('\n'))), "'");
  } catch (const Error& error) {
    problem = error.message();
  }
  return std::nullopt;
}

bool is_package(const std::string& folder) {
  try {
    return read_regular_file(folder + "/name", kMostMeterBytes).starts_with("package");
  } catch (const Error&) {
    return false;
  }
}

// The zones of whole packages; of their parts (cores, memory) and of the platform the names are others.
std::vector<std::string> package_folders(const std::string& folder) {
  std::vector<std::string> result;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end; entry.increment(error)) {
    if (is_package(entry->path().string())) {
      result.push_back(entry->path().string());
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

PackageEnergyMeter::PackageEnergyMeter(const std::string& folder) {
  for (const std::string& package : package_folders(folder)) {
    const std::string path = package + "/energy_uj";
    const auto first = counter_in(path, missing_);
    const auto range = first ? counter_in(package + "/max_energy_range_uj", missing_) : std::nullopt;
    if (!range) {
      packages_.clear();
      return;
    }
    packages_.push_back({path, *first, *range});
  }
  if (packages_.empty()) {
    missing_ = str("no processor's energy counter in ", shown(folder));
  }
}

Energy PackageEnergyMeter::read() {
  int64_t sum = 0;
  for (Package& package : packages_) {
    const auto now = counter_in(package.path, missing_);
    if (!now) {
      packages_.clear();
      break;
    }
    const int64_t rise = *now - package.last + (*now < package.last ? package.range : 0);
    if (rise < 0 || rise > package.range / 2 + 1) {  // half a range is minutes of full load
      missing_ = str(package.path, " jumped from ", package.last, " to ", *now);
      packages_.clear();
      break;
    }
    package.counted += rise;
    package.last = *now;
    sum += package.counted;
  }
  if (packages_.empty()) {
    return {std::nullopt, missing_};
  }
  return {static_cast<double>(sum) * 1e-6, {}};
}

// The library's C interface, as far as it is used: a result of 0 is success.
class GpuMeter::Nvml {
 public:
  // Null, and `missing` says why, where the GPU cannot be asked.
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

  // 0 where it cannot be asked.
  static int count() {
    Nvml nvml;
    unsigned count = 0;
    int (*count_of)(unsigned*) = nullptr;
    const bool is_known = nvml.load().empty() && nvml.find(count_of, "nvmlDeviceGetCount_v2") && count_of(&count) == 0;
    return is_known ? static_cast<int>(count) : 0;
  }

  std::optional<double> joules() const {
    unsigned long long millijoules = 0;
    if (total_energy_ == nullptr || total_energy_(device_, &millijoules) != 0) {
      return std::nullopt;
    }
    return static_cast<double>(millijoules) * 1e-3;
  }

  GpuUsage usage() const {
    GpuUsage result;
    if (Utilisation now; utilisation_ != nullptr && utilisation_(device_, &now) == 0) {
      result.utilisation = now.gpu;
      result.memory_utilisation = now.memory;
    }
    if (Memory now; memory_ != nullptr && memory_(device_, &now) == 0) {
      result.memory_bytes = static_cast<int64_t>(now.used);
    }
    return result;
  }

 private:
  static constexpr const char* kTooOld = "the driver's libnvidia-ml.so.1 is too old";

  using Device = void*;
  struct Utilisation {  // nvmlUtilization_t
    unsigned gpu = 0;
    unsigned memory = 0;
  };
  struct Memory {  // nvmlMemory_t
    unsigned long long total = 0;
    unsigned long long free = 0;
    unsigned long long used = 0;
  };

  template <class Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }

  // What is missing; nothing where all is well.
  std::string load() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      return "the driver's libnvidia-ml.so.1 is not there";
    }
    int (*init)() = nullptr;
    int (*shutdown)() = nullptr;
    if (!find(init, "nvmlInit_v2") || !find(shutdown, "nvmlShutdown")) {
      return kTooOld;
    }
    if (const int result = init(); result != 0) {
      return str("nvmlInit_v2 failed with ", result);
    }
    shutdown_ = shutdown;
    return "";
  }

  std::string start(const std::string& pci_address) {
    int (*device_of)(const char*, Device*) = nullptr;
    if (const std::string missing = load(); !missing.empty()) {
      return missing;
    }
    if (!find(device_of, "nvmlDeviceGetHandleByPciBusId_v2")) {
      return kTooOld;
    }
    if (const int result = device_of(pci_address.c_str(), &device_); result != 0) {
      return str("NVML does not know the GPU ", pci_address, " (", result, ")");
    }
    find(total_energy_, "nvmlDeviceGetTotalEnergyConsumption");
    find(utilisation_, "nvmlDeviceGetUtilizationRates");
    find(memory_, "nvmlDeviceGetMemoryInfo");
    return "";
  }

  void* library_ = nullptr;
  int (*shutdown_)() = nullptr;
  int (*total_energy_)(Device, unsigned long long*) = nullptr;
  int (*utilisation_)(Device, Utilisation*) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  Device device_ = nullptr;
};

GpuMeter::GpuMeter(const std::string& pci_address) {
  if (pci_address.empty()) {
    missing_ = "no GPU is used";
    return;
  }
  nvml_ = Nvml::open(pci_address, missing_);
  if (nvml_) {
    first_joules_ = nvml_->joules();
    missing_ = first_joules_ ? "" : str("the GPU ", pci_address, " has no energy counter");
  }
}

GpuMeter::~GpuMeter() = default;

Energy GpuMeter::read() {
  if (!first_joules_) {
    return {std::nullopt, missing_};
  }
  const auto now = nvml_->joules();
  return now ? Energy{*now - *first_joules_, {}} : Energy{std::nullopt, "the GPU's energy counter failed"};
}

int GpuMeter::num_on_machine() {
  return Nvml::count();
}

GpuUsage GpuMeter::usage() const {
  return nvml_ ? nvml_->usage() : GpuUsage{};
}

}  // namespace vit_hybrid
