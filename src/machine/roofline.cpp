// Roofline: the table of data sheets, and the measured rate of products.
#include "src/machine/roofline.h"

#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <memory>

#include "src/base/memory_tracker.h"
#include "src/base/timer.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/matmul.h"

namespace vit_hybrid::train {

namespace {

// TFLOP/s without sparsity; fp64 and fp32 by the faster of vector units and tensor cores that gives that precision.
struct DataSheet {
  const char* name;                                   // a part of the driver's name; the first row that fits counts
  std::array<double, kPrecisionNames.size()> tflops;  // in the order of Precision: fp32, fp64, tf32, bf16, fp16
};

constexpr std::array<DataSheet, 9> kDataSheets = {{
    {"H200 NVL", {60.0, 60.0, 417.5, 835.5, 835.5}},
    {"H200", {67.0, 67.0, 494.7, 989.4, 989.4}},  // GH200 too
    {"H100 NVL", {60.0, 60.0, 417.5, 835.5, 835.5}},
    {"H100 PCIe", {51.2, 51.2, 378.0, 756.0, 756.0}},
    {"H100", {66.9, 66.9, 494.7, 989.4, 989.4}},
    {"A100", {19.5, 19.5, 156.0, 312.0, 312.0}},
    {"V100-SXM2", {15.7, 7.8, 0.0, 0.0, 125.0}},
    {"V100S-PCIE", {16.4, 8.2, 0.0, 0.0, 130.0}},
    {"V100-PCIE", {14.0, 7.0, 0.0, 0.0, 112.0}},
}};

constexpr int64_t kFirstHostSize = 256;
constexpr int64_t kLargestHostSize = 4096;
constexpr int64_t kDeviceSize = 8192;
constexpr int64_t kSmallestDeviceSize = 1024;

// The measured kernel of a GPU's product, unless the run has that one itself. The CPU has nothing to choose.
class ChosenKernel {
 public:
  ChosenKernel(int64_t size, c10::Device device, at::ScalarType type) {
    if (device.is_cpu()) {
      return;
    }
    const auto problem = kernels::product_problem(kernels::ProductKind::kForward, kernels::ProductExtra::kNone, size,
                                                  size, size, type, kernels::device_kernel_options().fp32);
    if (kernels::kernel_table().find(problem.name()) == nullptr) {
      kernels::measure_product(problem, device);
      kernels::forget_product_plans();
      own_ = problem.name();
    }
  }
  ~ChosenKernel() {
    if (!own_.empty()) {
      kernels::kernel_table().choices.erase(own_);
      kernels::forget_product_plans();
    }
  }
  ChosenKernel(const ChosenKernel&) = delete;
  ChosenKernel& operator=(const ChosenKernel&) = delete;

 private:
  std::string own_;  // the problem's name
};

class SquareProduct {
 public:
  SquareProduct(int64_t size, c10::Device device, at::ScalarType type)
      : size_(size),
        kernel_(size, device, type),
        x_(filled(size, device, type)),
        weight_(filled(size, device, type)),
        clock_(device.type()) {
    seconds_of(1);  // packs the weight, and whatever a first call does
  }

  double flops() const {
    return 2.0 * static_cast<double>(size_) * static_cast<double>(size_) * static_cast<double>(size_);
  }

  double seconds_of(int count) {
    double seconds = 0.0;
    {
      const auto phase = clock_.measure(seconds);
      for (int i = 0; i < count; ++i) {
        kernels::linear_forward(x_, weight_, 0, {});
      }
    }
    clock_.collect();
    return seconds;
  }

 private:
  // Values like those of a network: a GPU draws less power, and is faster, on zeros.
  static at::Tensor filled(int64_t size, c10::Device device, at::ScalarType type) {
    return at::randn({size, size}, at::TensorOptions(device).dtype(type));
  }

  int64_t size_;
  ChosenKernel kernel_;
  at::Tensor x_;
  kernels::PackedWeight weight_;
  PhaseClock clock_;
};

// The mean over all the time, not the best of it: where ranks share cores, each is alone on one in its turns, and the
// sum over the ranks would be more than the machine has.
double sustained_rate(SquareProduct& product, double seconds) {
  constexpr double kWindow = 0.05;
  const double once = std::max(product.seconds_of(1), 1e-6);
  const int count = std::max(1, static_cast<int>(kWindow / once));
  const Timer timer;
  double flops = 0.0;
  double busy = 0.0;
  do {
    busy += product.seconds_of(count);
    flops += count * product.flops();
  } while (timer.seconds() < seconds);
  return flops / busy;
}

// Of two calls the faster: one that another program interrupts says nothing.
double undisturbed_seconds(SquareProduct& product) {
  return std::min(product.seconds_of(1), product.seconds_of(1));
}

// The largest product that runs three times within `seconds`, smaller ones before it.
std::unique_ptr<SquareProduct> host_product(at::ScalarType type, double seconds) {
  const Timer timer;
  int64_t size = kFirstHostSize;
  auto product = std::make_unique<SquareProduct>(size, c10::Device(c10::kCPU), type);
  while (size < kLargestHostSize && 3 * 8 * undisturbed_seconds(*product) < seconds - timer.seconds()) {
    size *= 2;
    product = std::make_unique<SquareProduct>(size, c10::Device(c10::kCPU), type);
  }
  return product;
}

// Null where the device has no memory for it.
std::unique_ptr<SquareProduct> device_product(c10::Device device, at::ScalarType type) {
  for (int64_t size = kDeviceSize; size >= kSmallestDeviceSize; size /= 2) {
    try {
      return std::make_unique<SquareProduct>(size, device, type);
    } catch (const c10::OutOfMemoryError&) {  // a smaller one may fit
    }
  }
  return nullptr;
}

}  // namespace

double gpu_peak_flops(const std::string& name, Precision precision) {
  for (const DataSheet& sheet : kDataSheets) {
    if (name.find(sheet.name) != std::string::npos) {
      return 1e12 * sheet.tflops.at(static_cast<size_t>(precision));
    }
  }
  return 0.0;
}

std::optional<double> measure_matmul_roof(c10::Device device, at::ScalarType type, double seconds,
                                          const std::function<void()>& ready) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const double growing = device.is_cpu() ? 0.4 * seconds : 0.0;
  const auto product = device.is_cpu() ? host_product(type, growing) : device_product(device, type);
  ready();
  return product ? std::optional(sustained_rate(*product, seconds - growing)) : std::nullopt;
}

}  // namespace vit_hybrid::train
