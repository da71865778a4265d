// The plans of the products of each GPU.
#include "parallel/tensor/cuda_product_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "parallel/tensor/device_kernels.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::tensor {

namespace {

struct AllDevices {
  std::mutex mutex;
  std::map<c10::DeviceIndex, std::unique_ptr<DeviceProducts>> products;
};

// Never destroyed: at the end of the process the driver may be gone before static objects are.
AllDevices& all_devices() {
  static auto* const devices = new AllDevices();
  return *devices;
}

}  // namespace

DeviceProducts& DeviceProducts::of(c10::Device device) {
  AllDevices& devices = all_devices();
  const std::lock_guard lock(devices.mutex);
  auto& products = devices.products[device.index()];
  if (products == nullptr) {
    products = std::make_unique<DeviceProducts>();
  }
  return *products;
}

std::vector<DeviceProducts*> DeviceProducts::all() {
  AllDevices& devices = all_devices();
  const std::lock_guard lock(devices.mutex);
  std::vector<DeviceProducts*> result;
  for (const auto& [index, products] : devices.products) {
    result.push_back(products.get());
  }
  return result;
}

DeviceProducts::DeviceProducts() {
  check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
}

bool DeviceProducts::run(const ProductProblem& problem, const ProductOperands& operands) {
  const std::lock_guard lock(mutex_);
  Ready& product = ready(problem);
  if (!product.algorithm) {
    return false;
  }
  const auto stream = c10::cuda::getCurrentCUDAStream();
  product.plan.run(*product.algorithm, operands, workspace(stream), stream.stream());
  return true;
}

void DeviceProducts::run(ProductPlan& plan, const ProductAlgorithm& algorithm, const ProductOperands& operands) {
  const std::lock_guard lock(mutex_);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  plan.run(algorithm, operands, workspace(stream), stream.stream());
}

void DeviceProducts::forget_plans() {
  const std::lock_guard lock(mutex_);
  products_.clear();
}

std::vector<std::string> DeviceProducts::unmeasured() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [problem, product] : products_) {
    if (!product.is_measured) {
      names.push_back(problem.name());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

DeviceProducts::Ready& DeviceProducts::ready(const ProductProblem& problem) {
  const auto found = products_.find(problem);
  return found != products_.end() ? found->second : products_.emplace(problem, prepare(problem)).first->second;
}

DeviceProducts::Ready DeviceProducts::prepare(const ProductProblem& problem) {
  Ready product{ProductPlan(problem, handle_), std::nullopt, false};
  if (const KernelChoice* choice = kernel_table().find(problem.name())) {
    product.is_measured = true;
    if (choice->kernel == kApart) {
      return product;
    }
    product.algorithm = ProductAlgorithm::from_kernel(choice->kernel);
    if (!product.plan.accepts(*product.algorithm)) {
      throw Error(ErrorClass::kInternal,
                  str("the kernel chosen for ", problem.name(), " (", choice->text, ") does not run on this GPU"),
                  "start all ranks on GPUs of one kind, and give --retune");
    }
    return product;
  }
  if (problem.extra == ProductExtra::kBiasGradient) {
    return product;  // fused only where that was measured to be faster: it often is not
  }
  const bool is_fixed = device_kernel_options().order == SumOrder::kFixed;
  for (const ProductAlgorithm& algorithm : product.plan.algorithms(kMostAlgorithms)) {
    if (!is_fixed || algorithm.has_fixed_order()) {
      product.algorithm = algorithm;
      break;
    }
  }
  return product;
}

void* DeviceProducts::workspace(const c10::cuda::CUDAStream& stream) {
  at::Tensor& memory = workspaces_[stream.id()];
  if (!memory.defined()) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    memory =
        at::empty({static_cast<int64_t>(kProductWorkspaceBytes)}, at::TensorOptions(at::kByte).device(stream.device()));
  }
  return memory.mutable_data_ptr();
}

}  // namespace vit_hybrid::tensor
