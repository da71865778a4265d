// The plans of the products of each GPU.
#include "src/kernels/gemm/cuda_product_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/kernels/gemm/device_kernels.h"

namespace vit_hybrid::kernels {

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

// A choice of rank 0, or of an earlier start of the run.
[[noreturn]] void refuse_choice(const ProductProblem& problem) {
  throw Error(ErrorClass::kInternal,
              str("the kernel chosen for ", problem.name(), " (", kernel_table().find(problem.name())->text,
                  ") does not run on this GPU"),
              "start all ranks on GPUs of one kind, and give --retune");
}

}  // namespace

DeviceProducts& DeviceProducts::of(c10::Device device) {
  AllDevices& devices = all_devices();
  const std::lock_guard lock(devices.mutex);
  auto& products = devices.products[device.index()];
  if (products == nullptr) {
    products = std::make_unique<DeviceProducts>(device);
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

DeviceProducts::DeviceProducts(c10::Device device)
    : workspace_bytes_(product_workspace_bytes(device_traits(device).capability)) {
  check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
}

bool DeviceProducts::run(const ProductProblem& problem, const ProductOperands& operands) {
  const std::lock_guard lock(mutex_);
  Ready& product = ready(problem);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  while (!product.algorithms.empty()) {
    if (product.plan.run(product.algorithms.front(), operands, workspace(stream), stream.stream())) {
      return true;
    }
    if (product.is_measured) {
      refuse_choice(problem);
    }
    product.algorithms.erase(product.algorithms.begin());
  }
  return false;
}

bool DeviceProducts::run(ProductPlan& plan, const ProductAlgorithm& algorithm, const ProductOperands& operands) {
  const std::lock_guard lock(mutex_);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  return plan.run(algorithm, operands, workspace(stream), stream.stream());
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
  Ready product{plan(problem), {}, false};
  if (const KernelChoice* choice = kernel_table().find(problem.name())) {
    product.is_measured = true;
    if (choice->kernel == kApart) {
      return product;
    }
    product.algorithms = {ProductAlgorithm::from_kernel(choice->kernel)};
    if (!product.plan.accepts(product.algorithms.front())) {
      refuse_choice(problem);
    }
    return product;
  }
  if (problem.extra == ProductExtra::kBiasGradient) {
    return product;  // fused only where that was measured to be faster: it often is not
  }
  product.algorithms = product.plan.algorithms(kMostAlgorithms);
  return product;
}

void* DeviceProducts::workspace(const c10::cuda::CUDAStream& stream) {
  at::Tensor& memory = workspaces_[stream.id()];
  if (!memory.defined()) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    memory = at::empty({static_cast<int64_t>(workspace_bytes_)}, at::TensorOptions(at::kByte).device(stream.device()));
  }
  return memory.mutable_data_ptr();
}

}  // namespace vit_hybrid::kernels
