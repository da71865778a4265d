// The choice of a product's algorithm by measuring all that cuBLASLt offers.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "parallel/tensor/cuda_product_cache.h"
#include "parallel/tensor/device_kernels.h"
#include "parallel/tensor/device_products.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::tensor {

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

// The fastest of what is offered: `chosen` among those that the options allow.
struct Fastest {
  std::optional<ProductAlgorithm> algorithm;
  double chosen = std::numeric_limits<double>::infinity();
  double any = std::numeric_limits<double>::infinity();
};

Fastest measure_algorithms(const ProductProblem& problem, const Operands& operands, c10::Device device) {
  DeviceProducts& products = DeviceProducts::of(device);
  ProductPlan plan(problem, products.handle());
  const bool is_fixed = device_kernel_options().order == SumOrder::kFixed;
  const at::Tensor gradient = at::empty_like(operands.vector).zero_();
  Fastest fastest;
  for (const ProductAlgorithm& algorithm : plan.algorithms(kMostAlgorithms)) {
    const double microseconds = device_microseconds([&] {
      products.run(plan, algorithm, operands.addresses());
      if (problem.extra == ProductExtra::kBiasGradient) {
        gradient.add_(operands.vector);
      }
    });
    fastest.any = std::min(fastest.any, microseconds);
    const bool is_allowed = !is_fixed || (problem.extra != ProductExtra::kBiasGradient && algorithm.has_fixed_order());
    if (is_allowed && microseconds < fastest.chosen) {
      fastest.chosen = microseconds;
      fastest.algorithm = algorithm;
    }
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
KernelChoice plain_choice(ProductProblem problem, c10::Device device) {
  problem.extra = ProductExtra::kNone;
  if (kernel_table().find(problem.name()) == nullptr) {
    measure_product(problem, device);
  }
  return *kernel_table().find(problem.name());
}

}  // namespace

void measure_product(const ProductProblem& problem, c10::Device device) {
  VH_ASSERT(problem.rows > 0 && problem.outputs > 0 && problem.inputs > 0, problem.name());
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

}  // namespace vit_hybrid::tensor
