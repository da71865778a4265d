// What GPUs this process can use, and why there are none; which GPU one is, and its memory.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid {

/// One GPU as the CUDA runtime sees it.
struct Gpu {
  std::string name;  ///< "NVIDIA H200"
  std::string uuid;  ///< "GPU-5d3c1a2b-...", another one for each slice of a divided GPU
  int major = 0;     ///< compute capability, as in 9.0
  int minor = 0;
};

/// What a process was told of the GPUs of its node.
struct GpuSurvey {
  bool has_cuda = false;    ///< the program was built with CUDA
  std::vector<Gpu> gpus;    ///< in the order of their numbers
  bool is_broken = false;   ///< there is a driver, and it cannot be used with this program
  std::string none_reason;  ///< why gpus is empty: "no NVIDIA driver is installed"
  int num_on_node = 0;      ///< GPUs of the node by its driver, whoever may use them; 0: not known
};

/// The CUDA runtime's refusal to count devices. Versions are CUDA's: 12040 for 12.4, 0 for a driver that is not there.
struct CudaRefusal {
  enum class Kind { kDriverTooOld, kNoDevice, kOther };
  Kind kind = Kind::kOther;
  std::string text;  ///< the runtime's own, for kOther
  int driver_version = 0;
  int runtime_version = 0;
};

/// "12.4" for CUDA's 12040.
std::string cuda_version_text(int number);

/// The survey that a refusal makes; `visible_devices` is CUDA_VISIBLE_DEVICES, or null. Pure.
GpuSurvey explain(const CudaRefusal& refusal, const char* visible_devices);

/// Whether this program was built with CUDA.
bool is_built_with_cuda();

/// Asks the CUDA runtime. Makes no context on any device.
GpuSurvey survey_gpus();

// What memory a GPU's allocator has held, and which GPU it is; empty answers in programs without CUDA.

/// Most bytes that the allocator has held of the device so far, its unused blocks included; 0 for the CPU.
int64_t device_peak_bytes(c10::Device device);

/// Bytes of memory that the device has; 0 for the CPU, and where the device cannot be asked.
int64_t device_total_bytes(c10::Device device);

/// PCI address of a GPU, as its driver's tools show it ("00000000:1B:00.0"); empty for the CPU.
std::string device_pci_address(c10::Device device);

}  // namespace vit_hybrid
