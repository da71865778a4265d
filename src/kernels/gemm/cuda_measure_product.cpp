// The choice of a product's algorithm by measuring what cuBLASLt offers.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/kernels/gemm/cuda_product_cache.h"
#include "src/kernels/gemm/device_kernels.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/kernel_timing.h"

namespace vit_hybrid::kernels {

namespace {

// Tensors of a problem's shapes with random values: what a GPU can do depends on the bits that it moves.
struct Operands {
  at::Tensor a, b, d, vector;

  Operands(const ProductProblem& problem, c10::Device device) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    const ColumnMajorProduct product = column_major(problem);
    const auto matrix = [&](const ColumnMajor& shape, at::ScalarType type) {
      return at::empty({shape.columns, shape.rows}, at::TensorOptions(type).device(device)).normal_();
    };
    a = matrix(product.a, problem.type);
    b = matrix(product.b, problem.type);
    d = matrix(product.d, problem.result);
    vector = at::empty({problem.outputs}, d.options()).normal_();
  }

  ProductOperands addresses() const {
    return {a.const_data_ptr(), b.const_data_ptr(), d.mutable_data_ptr(), vector.mutable_data_ptr()};
  }
};

// The fastest of what is offered, and whether the options allow it.
struct Fastest {
  std::optional<ProductAlgorithm> algorithm;
  double chosen = std::numeric_limits<double>::infinity();
  double any = std::numeric_limits<double>::infinity();
};

Fastest measure_algorithms(const ProductProblem& problem, const Operands& operands, c10::Device device) {
  DeviceProducts& products = DeviceProducts::of(device);
  ProductPlan plan = products.plan(problem);
  const std::vector<ProductAlgorithm> algorithms = plan.algorithms(kMostAlgorithms);
  const at::Tensor gradient = at::empty_like(operands.vector).zero_();
  const auto measured = fastest_candidate(algorithms.size(), [&](size_t number, Effort effort) {
    bool ran = true;
    const double microseconds = device_microseconds(
        [&] {
          ran = products.run(plan, algorithms[number], operands.addresses()) && ran;
          if (problem.extra == ProductExtra::kBiasGradient) {
            gradient.add_(operands.vector);
          }
        },
        effort);
    return ran ? std::optional(microseconds) : std::nullopt;
  });
  if (!measured) {
    return {};
  }
  // How a fused bias gradient is added up the library does not say.
  const bool is_allowed =
      device_kernel_options().order == SumOrder::kAny || problem.extra != ProductExtra::kBiasGradient;
  Fastest fastest;
  fastest.any = measured->microseconds;
  if (is_allowed) {
    fastest.algorithm = algorithms[measured->candidate];
    fastest.chosen = fastest.any;
  }
  return fastest;
}

// What device_products.h falls back to. In memory, a and b are the transposes of the column-major factors.
double measure_libtorch(const ProductProblem& problem, const Operands& operands) {
  const ColumnMajorProduct product = column_major(problem);
  const at::Tensor left = product.b.transposed ? operands.b.t() : operands.b;
  const at::Tensor right = product.a.transposed ? operands.a.t() : operands.a;
  return device_microseconds([&] {
    const at::Tensor result = at::mm(left, right);
    if (product.accumulates) {
      operands.d.add_(result);
    }
  });
}

// The extra as a kernel of its own.
double measure_extra(const ProductProblem& problem, const Operands& operands) {
  return device_microseconds([&] {
    if (problem.extra == ProductExtra::kBias) {
      operands.d.add_(operands.vector);
    } else {
      device_add_column_sums(operands.vector, operands.b);
    }
  });
}

// The choice of the product without its extra, measured if it was not.
KernelChoice plain_choice(const ProductProblem& problem, c10::Device device) {
  const ProductProblem plain = problem.without_extra();
  if (kernel_table().find(plain.name()) == nullptr) {
    measure_product(plain, device);
  }
  return *kernel_table().find(plain.name());
}

// Sets a device to work for a while.
void keep_busy(c10::Device device) {
  constexpr int64_t kSide = 2048;
  constexpr int kCallsAtOnce = 32;
  constexpr double kSeconds = 0.1;
  const c10::cuda::CUDAGuard guard(device);
  const ProductProblem problem =
      product_problem(ProductKind::kForward, ProductExtra::kNone, kSide, kSide, kSide, at::kHalf);
  const Operands operands(problem, device);
  DeviceProducts& products = DeviceProducts::of(device);
  ProductPlan plan = products.plan(problem);
  const std::vector<ProductAlgorithm> algorithms = plan.algorithms(kMostAlgorithms);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  bool runs = !algorithms.empty();
  for (const Timer timer; runs && timer.seconds() < kSeconds;) {
    for (int i = 0; i < kCallsAtOnce && runs; ++i) {
      runs = products.run(plan, algorithms.front(), operands.addresses());
    }
    stream.synchronize();
  }
}

}  // namespace

void wake_device(c10::Device device) {
  static std::mutex mutex;
  static std::set<c10::DeviceIndex> awake;
  const std::lock_guard lock(mutex);
  if (awake.insert(device.index()).second) {
    keep_busy(device);
  }
}

void measure_product(const ProductProblem& problem, c10::Device device) {
  VH_ASSERT(problem.rows > 0 && problem.outputs > 0 && problem.inputs > 0, problem.name());
  wake_device(device);
  const c10::cuda::CUDAGuard guard(device);
  const Operands operands(problem, device);
  const Fastest fused = measure_algorithms(problem, operands, device);
  KernelChoice choice;
  if (fused.algorithm) {
    choice = {fused.algorithm->kernel(), fused.algorithm->text(), fused.chosen, fused.any};
  }
  // A bias that is added by a kernel of its own is added to what was rounded before: only where nothing else is
  // offered.
  if (problem.extra == ProductExtra::kBiasGradient || (problem.extra == ProductExtra::kBias && !fused.algorithm)) {
    const KernelChoice plain = plain_choice(problem, device);
    const double extra = measure_extra(problem, operands);
    const double fastest = std::min(fused.any, plain.fastest + extra);
    if (!fused.algorithm || plain.microseconds + extra < fused.chosen) {
      choice = {kApart, "two kernels", plain.microseconds + extra, fastest};
    }
    choice.fastest = fastest;
  } else if (!fused.algorithm) {
    const double libtorch = measure_libtorch(problem, operands);
    choice = {kApart, "LibTorch's product", libtorch, libtorch};
  }
  kernel_table().choose(problem.name(), std::move(choice));
}

}  // namespace vit_hybrid::kernels
