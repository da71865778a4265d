// The roof: square products that grow until they are large, then as many as there is time for.
#include "src/machine/machine_roof.h"

#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <string>

#include "src/base/memory_tracker.h"
#include "src/base/phase_clock.h"
#include "src/kernels/gemm/device_kernels.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/matmul.h"

namespace vit_hybrid::train {

namespace {

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
    auto problem =
        kernels::product_problem(kernels::ProductKind::kForward, kernels::ProductExtra::kNone, size, size, size, type);
    problem.fp32 = type == at::kFloat ? kernels::device_kernel_options().fp32 : kernels::Fp32Products::kExact;
    if (kernels::kernel_table().find(problem.name()) == nullptr) {
      kernels::measure_product(problem, device);
      kernels::forget_product_plans();
      own_ = problem.name();
    }
  }
  ~ChosenKernel() {
    if (!own_.empty()) {
      kernels::kernel_table().forget(own_);
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

std::optional<double> measure_matmul_roof(c10::Device device, at::ScalarType type, double seconds,
                                          const std::function<void()>& ready) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const double growing = device.is_cpu() ? 0.4 * seconds : 0.0;
  const auto product = device.is_cpu() ? host_product(type, growing) : device_product(device, type);
  ready();
  return product ? std::optional(sustained_rate(*product, seconds - growing)) : std::nullopt;
}

}  // namespace vit_hybrid::train
