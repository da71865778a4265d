// What GPUs this process can use, and why there are none.
#pragma once

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

}  // namespace vit_hybrid
