// Linear layers on GPUs: operands of our shapes handed to cuBLASLt.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <type_traits>
#include <utility>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/cublaslt.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/epilogue.h"

namespace vit_hybrid::kernels {

namespace {

// How long the calls of a round are to take, at most how many they are, and how many rounds there are.
struct Rounds {
  double microseconds;
  int most_calls;
  int count;
};
constexpr Rounds kBriefRounds = {200.0, 20, 1};
constexpr Rounds kFullRounds = {1500.0, 200, 3};

// Microseconds of one of `repeats` calls.
double measure(const std::function<void()>& work, int repeats) {
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  begin.record();
  for (int i = 0; i < repeats; ++i) {
    work();
  }
  end.record();
  end.synchronize();
  return 1e3 * static_cast<double>(begin.elapsed_time(end)) / repeats;
}

// A GPU that had nothing to do runs at a low clock, and what is measured first would be of that: for a tenth of a
// second it is given the first work before.
void wake_device(const std::function<void()>& work) {
  constexpr double kSeconds = 0.1;
  static std::mutex mutex;
  static std::set<c10::DeviceIndex> awake;
  const std::lock_guard lock(mutex);
  if (awake.insert(c10::cuda::current_device()).second) {
    for (const Timer timer; timer.seconds() < kSeconds;) {
      measure(work, kBriefRounds.most_calls);
    }
  }
}

ProductProblem problem_of(ProductKind kind, ProductExtra extra, int64_t rows, const at::Tensor& matrix_MK,
                          at::ScalarType type) {
  ProductProblem problem =
      product_problem(kind, extra, rows, matrix_MK.size(0), matrix_MK.size(1), type, device_kernel_options().fp32);
  problem.result = matrix_MK.scalar_type();
  return problem;
}

void add_by_libtorch(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  if (gradient.scalar_type() == x.scalar_type()) {
    gradient.addmm_(dy.t(), x);
  } else {
    gradient.add_(at::mm(dy.t(), x));
  }
}

// False, and nothing is done, where cuBLASLt does not compute it.
bool run(const ProductProblem& problem, const ProductOperands& operands) {
  return DeviceProducts::of(operands.a.device()).run(problem, operands);
}

// gradient += dy^T x and, into `sums` [M] unless it is undefined, dy's sums over the rows.
bool run_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& sums) {
  const ProductExtra extra = sums.defined() ? ProductExtra::kBiasGradient : ProductExtra::kNone;
  return run(problem_of(ProductKind::kWeightGradient, extra, dy.size(0), gradient, x.scalar_type()),
             {x, dy, gradient, sums});
}

bool run_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const ProductExtra extra = bias.defined() ? ProductExtra::kBias : ProductExtra::kNone;
  return run(problem_of(ProductKind::kForward, extra, x.size(0), weight, x.scalar_type()), {weight, x, y, bias});
}

// gelu(z) and z of z = x W^T + b where one kernel computes both, and it does where only one of them is wanted, too: the
// other is to have the same bits. Undefined where there is none.
std::pair<at::Tensor, at::Tensor> fused_gelu_forward(const at::Tensor& x, const at::Tensor& weight,
                                                     const at::Tensor& bias, GeluKind kind) {
  const bool may_fuse = may_fuse_gelu(kind, x.scalar_type(), device_kernel_options().fp32);
  if (!may_fuse || !bias.defined() || x.numel() == 0 || weight.numel() == 0) {
    return {};
  }
  const c10::cuda::CUDAGuard guard(x.device());
  const auto problem = problem_of(ProductKind::kForward, ProductExtra::kBiasGelu, x.size(0), weight, x.scalar_type());
  ProductOperands operands{weight, x.contiguous(), {}, bias};
  if (!DeviceProducts::of(x.device()).has_kernel(problem, operands)) {
    return {};
  }
  operands.d = at::empty({x.size(0), weight.size(0)}, x.options());
  operands.pre_activation = at::empty_like(operands.d);
  return run(problem, operands) ? std::pair{operands.d, operands.pre_activation} : std::pair<at::Tensor, at::Tensor>();
}

ProductProblem gelu_gradient_problem(const at::Tensor& weight, int64_t rows) {
  return problem_of(ProductKind::kBackwardInput, ProductExtra::kGeluGradient, rows, weight, weight.scalar_type());
}

}  // namespace

DeviceTraits device_traits(c10::Device device) {
  VH_ASSERT(device.is_cuda(), device.str());
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(device.index());
  const auto& hooks = at::detail::getCUDAHooks();
  return {properties.name, properties.major * 10 + properties.minor, properties.multiProcessorCount,
          static_cast<int64_t>(cublasLtGetVersion()), hooks.hasCuDNN() ? hooks.versionCuDNN() : 0};
}

double device_microseconds(const std::function<void()>& work, Effort effort) {
  const Rounds& rounds = effort == Effort::kBrief ? kBriefRounds : kFullRounds;
  work();  // what is made at first use: kernels are loaded, plans built, memory allocated
  wake_device(work);
  const double once = std::max(measure(work, 2), 0.1);
  const int repeats = std::clamp(static_cast<int>(rounds.microseconds / once), 1, rounds.most_calls);
  double least = once;
  // One call more would say nothing that the two before did not.
  const bool is_known = effort == Effort::kBrief && repeats <= 2;
  for (int round = 0; round < rounds.count && !is_known; ++round) {
    least = std::min(least, measure(work, repeats));
  }
  return least;
}

void synchronize_device() {
  c10::cuda::device_synchronize();
}

void release_unused_device_memory() {
  c10::cuda::CUDACachingAllocator::emptyCache();
  c10::cuda::CUDACachingAllocator::resetPeakStats(c10::cuda::current_device());
}

at::Tensor device_linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (x.numel() == 0 || weight.numel() == 0) {
    return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
  }
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  if (run_forward(y, rows, weight, bias)) {
    return y;
  }
  if (!run_forward(y, rows, weight, {})) {
    at::mm_out(y, rows, weight.t());
  }
  return bias.defined() ? y.add_(bias) : y;
}

at::Tensor device_linear_backward_input(const at::Tensor& dy, const at::Tensor& weight) {
  if (dy.numel() == 0 || weight.numel() == 0) {
    return at::mm(dy, weight);
  }
  const c10::cuda::CUDAGuard guard(dy.device());
  const at::Tensor rows = dy.contiguous();
  at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  if (!run(problem_of(ProductKind::kBackwardInput, ProductExtra::kNone, dy.size(0), weight, dy.scalar_type()),
           {weight, rows, dx})) {
    at::mm_out(dx, rows, weight);
  }
  return dx;
}

at::Tensor device_linear_gelu_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                      GeluKind kind, at::Tensor* pre_activation) {
  auto [y, z] = fused_gelu_forward(x, weight, bias, kind);
  if (!y.defined()) {
    z = device_linear_forward(x, weight, bias);
    y = device_gelu(z, kind);
  }
  if (pre_activation != nullptr) {
    *pre_activation = z;
  }
  return y;
}

at::Tensor device_linear_pre_activation(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                        GeluKind kind) {
  const at::Tensor z = fused_gelu_forward(x, weight, bias, kind).second;
  return z.defined() ? z : device_linear_forward(x, weight, bias);
}

at::Tensor device_linear_gelu_backward_input(const at::Tensor& dy, const at::Tensor& weight, GeluKind kind,
                                             const at::Tensor& z) {
  if (device_fuses_gelu_backward(weight, dy.size(0), kind) && dy.numel() > 0) {
    const c10::cuda::CUDAGuard guard(dy.device());
    const at::Tensor in = z.contiguous(), dz = at::empty_like(in);
    if (run(gelu_gradient_problem(weight, dy.size(0)), {weight, dy.contiguous(), dz, {}, in})) {
      return dz;
    }
  }
  return device_gelu_backward(device_linear_backward_input(dy, weight), z, kind, {});
}

bool device_fuses_gelu_backward(const at::Tensor& weight, int64_t rows, GeluKind kind) {
  if (!may_fuse_gelu(kind, weight.scalar_type(), device_kernel_options().fp32) || rows == 0 || weight.numel() == 0) {
    return false;
  }
  return DeviceProducts::of(weight.device()).has_kernel(gelu_gradient_problem(weight, rows), {weight});
}

void device_add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x,
                                const at::Tensor& bias_gradient) {
  if (dy.numel() == 0 || x.numel() == 0) {
    if (bias_gradient.defined()) {
      device_add_column_sums(bias_gradient, dy);
    }
    return;
  }
  const c10::cuda::CUDAGuard guard(dy.device());
  const at::Tensor dy_rows = dy.contiguous();
  const at::Tensor x_rows = x.contiguous();
  // cuBLASLt overwrites a bias gradient, of the type of the product's result.
  const bool may_fuse = bias_gradient.defined() && bias_gradient.scalar_type() == gradient.scalar_type() &&
                        is_as_wide_as_sums(gradient.scalar_type());
  if (may_fuse) {
    const at::Tensor sums = at::empty_like(bias_gradient);
    if (run_weight_gradient(gradient, dy_rows, x_rows, sums)) {
      bias_gradient.add_(sums);
      return;
    }
  }
  if (bias_gradient.defined()) {
    device_add_column_sums(bias_gradient, dy_rows);
  }
  if (!run_weight_gradient(gradient, dy_rows, x_rows, {})) {
    add_by_libtorch(gradient, dy_rows, x_rows);
  }
}

std::string device_product_text(at::ScalarType type, GeluKind kind) {
  const bool is_tf32 = type == at::kFloat && device_kernel_options().fp32 == Fp32Products::kTf32;
  int measured = 0, with_gelu = 0, fused_gelu = 0;
  for (const auto& [problem, choice] : kernel_table().choices) {
    const bool has_gelu = problem.find("gelu") != std::string::npos;
    measured += problem.rfind("attention", 0) == 0 ? 0 : 1;
    with_gelu += has_gelu ? 1 : 0;
    fused_gelu += has_gelu && choice.kernel != kApart ? 1 : 0;
  }
  return str("cuBLASLt ", cublasLtGetVersion(), " in ", is_tf32 ? "tf32" : short_name(type), ", sums in ",
             type == at::kDouble ? "fp64" : "fp32", ", bias fused, GELU by an own kernel with ",
             kind == GeluKind::kErf ? "erf" : "tanh",
             with_gelu > 0 ? str(", fused in ", fused_gelu, " of ", with_gelu, " shapes") : "", "; ",
             measured == 0 ? std::string("the library's own choice of algorithms, nothing was measured")
                           : str("the fastest algorithms by measuring, for ", measured, " shapes"));
}

}  // namespace vit_hybrid::kernels
