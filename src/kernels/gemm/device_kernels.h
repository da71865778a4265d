// What kernels on GPUs are chosen by: a run's options, the device's properties, the table of measured choices, a
// stopwatch.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>

#include "src/kernels/gemm/kernel_choice.h"
#include "src/kernels/gemm/kernel_timing.h"
#include "src/kernels/gemm/product_problem.h"

namespace vit_hybrid::kernels {

/// kFixed: the same bits each time; kernels whose sums depend on which block of threads comes first are passed over.
enum class SumOrder { kAny, kFixed };

/// Of a run, the same on all ranks.
struct DeviceKernelOptions {
  Fp32Products fp32 = Fp32Products::kExact;
  SumOrder order = SumOrder::kAny;
};

/// Sets the options of the process; before its first work on a device. Also for what LibTorch itself computes with
/// cuBLAS and cuDNN: TF32 with kTf32 alone, sums never in half precision, and with kFixed CUBLAS_WORKSPACE_CONFIG,
/// unless it is set.
void set_device_kernel_options(const DeviceKernelOptions& options);
const DeviceKernelOptions& device_kernel_options();

/// The choices of the process; empty, and of no machine, until something is measured or loaded.
KernelTable& kernel_table();

/// Properties of a GPU that kernels differ by.
struct DeviceTraits {
  std::string name;    ///< "NVIDIA H200"
  int capability = 0;  ///< 90 for sm_90
  int multiprocessors = 0;
  int64_t cublaslt_version = 0;
  int64_t cudnn_version = 0;  ///< 91501 for 9.15.1; 0 without cuDNN
};

/// What a KernelTable holds for, as text: GPU, libraries, the order of sums, and the workspace of products.
std::string machine_text(const DeviceTraits& traits, SumOrder order);

/// Of a GPU; a broken invariant for the CPU, and in a program without CUDA.
const DeviceTraits& device_traits(c10::Device device);

/// Microseconds of the current device that `work` takes, which it puts on the current stream: the least of several
/// rounds, or with Effort::kBrief of two short ones. A broken invariant in a program without CUDA.
double device_microseconds(const std::function<void()>& work, Effort effort = Effort::kFull);

/// time_or_refusal() of device_microseconds().
KernelTime device_time(const std::function<void()>& work);

/// Waits for all work on the current device, and throws what went wrong there. A broken invariant in a program without
/// CUDA.
void synchronize_device();

/// Gives memory that LibTorch's allocator holds on the current device and does not use back to the device, so that what
/// measuring needed counts in no peak. A broken invariant in a program without CUDA.
void release_unused_device_memory();

}  // namespace vit_hybrid::kernels
