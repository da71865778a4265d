// Matmul: the choice of a kernel, the products by each, and the timer of those in fp32.
#include "src/kernels/gemm/matmul.h"

#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/instruction_sets.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/blocked_products.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/gemm/small_product.h"

namespace vit_hybrid::kernels {

namespace {

constexpr auto kBlocked = ProductKernel::kBlocked;
constexpr auto kLibrary = ProductKernel::kLibrary;

HostKernel& kernel_of_process() {
  static HostKernel kernel = usual_host_kernel();
  return kernel;
}

constexpr int64_t kSmallestBlockedProduct = int64_t{1} << 20;

// What the processor has for products of this type.
const char* instruction_set([[maybe_unused]] at::ScalarType type) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    if (type != at::kBFloat16) {
      return "AVX-512";
    }
    return has_avx512_bf16() ? "AVX-512 with bf16" : "AVX-512 without bf16";
  }
  return __builtin_cpu_supports("avx2") ? "AVX2 only" : "no AVX2";
#else
  return "not x86";
#endif
}

// The type's kernel for large products.
ProductKernel kernel_of_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return host_kernel().kernel;
    case at::kBFloat16:
      return has_bf16_block_kernel() ? ProductKernel::kBlocked : ProductKernel::kConverted;
    case at::kHalf:
      return ProductKernel::kConverted;
    default:
      return ProductKernel::kLibrary;
  }
}

// `tensor` in fp32 among the workspaces; undefined if it is.
at::Tensor workspace_in_fp32(const at::Tensor& tensor) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  return tensor.defined() ? tensor.to(at::kFloat) : tensor;
}

at::Tensor bias_in_fp32(const at::Tensor& bias, int64_t num_outputs) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  return bias.defined() ? bias.to(at::kFloat) : at::zeros({num_outputs}, at::kFloat);
}

at::Tensor new_rows(const at::Tensor& like, int64_t columns) {
  return at::empty({like.size(0), columns}, like.options());
}

void run_blocked_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias,
                         const BlockedOutput& out) {
  blocked_forward(x.contiguous(), weight.forward_panels(version), bias_in_fp32(bias, weight.weight().size(0)), out);
}

// The result for half-length types before it is rounded.
at::Tensor converted_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  return linear_forward(x.to(at::kFloat), weight.in_fp32(version), version, workspace_in_fp32(bias));
}

// gelu() of that, and that itself, each rounded.
at::Tensor converted_gelu_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias,
                                  GeluKind kind, at::Tensor* pre_activation) {
  at::Tensor z = converted_forward(x, weight, version, bias);
  if (pre_activation != nullptr) {
    *pre_activation = z.to(x.scalar_type());
  }
  {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    z = gelu(z, kind);
  }
  return z.to(x.scalar_type());
}

at::Tensor converted_backward_input(const at::Tensor& dy, PackedWeight& weight, int64_t version) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  return linear_backward_input(dy.to(at::kFloat), weight.in_fp32(version), version);
}

at::Tensor library_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

void add_converted_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const bool fits = gradient.scalar_type() == at::kFloat;
  const at::Tensor sums = fits ? gradient : at::zeros(gradient.sizes(), at::kFloat);
  add_weight_gradient(sums, dy.to(at::kFloat), x.to(at::kFloat), {});
  if (!fits) {
    add_rounded(gradient, sums);
  }
}

void add_library_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  if (gradient.scalar_type() == x.scalar_type()) {
    gradient.addmm_(dy.t(), x);
  } else {
    gradient.add_(at::mm(dy.t(), x));
  }
}

std::string library_text(const std::string& why) {
  return str("the BLAS of LibTorch", at::hasMKL() ? ", MKL (" : " (", why, ")");
}

std::string fp32_kernel_text() {
  constexpr const char* kOwn = "own blocks around oneDNN's fp32 kernel";
  const auto& [kernel, reason, is_rare] = host_kernel();
  const bool is_own = kernel == ProductKernel::kBlocked;
  const std::string setting = limiting_setting(at::kFloat);
  const std::string why = str(reason, is_own && is_rare ? str("; larger ones: ", kOwn) : "",
                              setting.empty() ? "" : str("; ", setting, " keeps oneDNN from AVX-512"));
  return is_own && !is_rare ? str(kOwn, " (", why, ")") : library_text(why);
}

std::string host_kernel_text(at::ScalarType type) {
  switch (kernel_of_type(type)) {
    case ProductKernel::kBlocked:
      return type == at::kFloat ? fp32_kernel_text()
                                : "own blocks around oneDNN's bf16 kernel, weights packed once a step, sums in fp32";
    case ProductKernel::kConverted:
      return str("converted to fp32, right but not fast (",
                 type == at::kHalf ? "no fp16 kernel on processors" : why_no_bf16_block_kernel(), "); ",
                 fp32_kernel_text());
    default:
      return type == at::kFloat ? fp32_kernel_text() : library_text("oneDNN has no block kernel for fp64");
  }
}

}  // namespace

std::string host_kernel_name(ProductKernel kernel) {
  VH_ASSERT(kernel == kBlocked || kernel == kLibrary, "a kernel of fp32 products");
  return kernel == kBlocked ? "blocked" : "library";
}

std::optional<ProductKernel> host_kernel_named(const std::string& name) {
  return name == "blocked" ? std::optional(kBlocked) : name == "library" ? std::optional(kLibrary) : std::nullopt;
}

std::string processor_maker_text() {
#if defined(__x86_64__)
  if (is_amd_processor()) {
    return "AMD processor";
  }
  if (__builtin_cpu_is("intel") != 0) {
    return "Intel processor";
  }
#endif
  return "processor of another maker";
}

std::string library_name() {
  return at::hasMKL() ? "MKL" : "the BLAS";
}

HostKernel usual_host_kernel() {
  if (!has_block_kernel()) {
    return {kLibrary, "this processor or LibTorch has no block kernel of oneDNN's"};
  }
  const std::string maker = processor_maker_text();
  if (maker != "AMD processor") {
    return {kLibrary, str(maker, ": ", library_name(), " is usual there")};
  }
  const bool is_limited = !limiting_setting(at::kFloat).empty();  // which the start-up report names
  return {kBlocked, is_limited ? maker : maker + ": MKL is half as fast there"};
}

const HostKernel& host_kernel() {
  return kernel_of_process();
}

void set_host_kernel(HostKernel kernel) {
  VH_ASSERT(kernel.kernel == kLibrary || (kernel.kernel == kBlocked && has_block_kernel()),
            str("kernel ", static_cast<int>(kernel.kernel), " for fp32 products"));
  kernel_of_process() = std::move(kernel);
}

KernelChoice choose_host_kernel(ProductKernel usual, double blocked, double library) {
  const auto is_time = [](double microseconds) { return std::isfinite(microseconds) && microseconds > 0.0; };
  if (!is_time(blocked) || !is_time(library)) {
    return unmeasured_host_kernel(usual, "the times that were measured say nothing");
  }
  const bool gives_way = usual == kBlocked ? blocked >= kClearlyFaster * library : library >= kClearlyFaster * blocked;
  const bool is_blocked = (usual == kBlocked) != gives_way;
  const std::string other = is_blocked ? library_name() : "own blocks", is = is_blocked ? " is " : " are ";
  const double ratio = is_blocked ? library / blocked : blocked / library;
  const std::string text = ratio >= 1.0
                               ? str("measured: ", fixed_text(ratio, 2), " times as fast as ", other)
                               : str(processor_maker_text(), "; measured: ", other, is, fixed_text(1.0 / ratio, 2),
                                     " times as fast, and", is, "taken from ", kClearlyFaster, " times on");
  return {host_kernel_name(is_blocked ? kBlocked : kLibrary), text, is_blocked ? blocked : library,
          std::min(blocked, library)};
}

KernelChoice unmeasured_host_kernel(ProductKernel usual, const std::string& why) {
  return {host_kernel_name(usual), str(processor_maker_text(), "; not measured: ", why), 0.0, 0.0};
}

bool is_large_product(int64_t rows, int64_t outputs, int64_t inputs) {
  return rows * outputs * inputs >= kSmallestBlockedProduct;
}

bool multiplies_in_fp32(at::ScalarType type) {
  return type == at::kFloat || kernel_of_type(type) == ProductKernel::kConverted;
}

ProductKernel choose_product_kernel(const at::Tensor& rows, int64_t num_outputs) {
  const bool is_small = !is_large_product(rows.size(0), num_outputs, rows.size(1));
  return is_small && rows.scalar_type() == at::kFloat ? ProductKernel::kLibrary : kernel_of_type(rows.scalar_type());
}

std::string product_kernel_text(c10::Device device, at::ScalarType type, GeluKind kind) {
  return device.is_cpu() ? str(instruction_set(type), ": ", host_kernel_text(type)) : device_product_text(type, kind);
}

bool copy_for_products(PackedWeight& weight, int64_t version) {
  switch (kernel_of_type(weight.weight().scalar_type())) {
    case ProductKernel::kBlocked:
      weight.forward_panels(version);
      weight.backward_panels(version);
      return true;
    case ProductKernel::kConverted:
      copy_for_products(weight.in_fp32(version), version);
      return true;
    default:
      return false;
  }
}

at::Tensor linear_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias) {
  const at::Tensor& matrix = weight.weight();
  if (!x.is_cpu()) {
    return device_linear_forward(x, matrix, bias);
  }
  const LongWork computes;
  switch (choose_product_kernel(x, matrix.size(0))) {
    case ProductKernel::kBlocked: {
      at::Tensor y = new_rows(x, matrix.size(0));
      run_blocked_forward(x, weight, version, bias, {y, {}});
      return y;
    }
    case ProductKernel::kConverted:
      return converted_forward(x, weight, version, bias).to(x.scalar_type());
    default:
      return library_forward(x, matrix, bias);
  }
}

at::Tensor linear_gelu_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias,
                               GeluKind kind, at::Tensor* pre_activation) {
  if (!x.is_cpu()) {
    return device_linear_gelu_forward(x, weight.weight(), bias, kind, pre_activation);
  }
  const LongWork computes;
  const bool is_kept = pre_activation != nullptr;
  const auto kernel = choose_product_kernel(x, weight.weight().size(0));
  if (kernel == ProductKernel::kBlocked) {
    const int64_t num_outputs = weight.weight().size(0);
    const BlockedOutput out{is_kept ? new_rows(x, num_outputs) : at::Tensor(), new_rows(x, num_outputs), kind};
    run_blocked_forward(x, weight, version, bias, out);
    if (is_kept) {
      *pre_activation = out.linear;
    }
    return out.activated;
  }
  if (kernel == ProductKernel::kConverted) {
    return converted_gelu_forward(x, weight, version, bias, kind, pre_activation);
  }
  const at::Tensor z = linear_forward(x, weight, version, bias);
  if (is_kept) {
    *pre_activation = z;
  }
  return gelu(z, kind);
}

at::Tensor linear_pre_activation(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias,
                                 GeluKind kind) {
  return x.is_cpu() ? linear_forward(x, weight, version, bias)
                    : device_linear_pre_activation(x, weight.weight(), bias, kind);
}

at::Tensor linear_backward_input(const at::Tensor& dy, PackedWeight& weight, int64_t version) {
  const at::Tensor& matrix = weight.weight();
  if (!dy.is_cpu()) {
    return device_linear_backward_input(dy, matrix);
  }
  const LongWork computes;
  switch (choose_product_kernel(dy, matrix.size(1))) {
    case ProductKernel::kBlocked: {
      at::Tensor dx = new_rows(dy, matrix.size(1));
      blocked_backward_input(dy.contiguous(), weight.backward_panels(version), dx);
      return dx;
    }
    case ProductKernel::kConverted:
      return converted_backward_input(dy, weight, version).to(dy.scalar_type());
    default:
      return at::mm(dy, matrix);
  }
}

at::Tensor linear_gelu_backward_input(const at::Tensor& dy, PackedWeight& weight, int64_t version, GeluKind kind,
                                      const at::Tensor& z) {
  return dy.is_cpu() ? gelu_backward(linear_backward_input(dy, weight, version), z, kind, {})
                     : device_linear_gelu_backward_input(dy, weight.weight(), kind, z);
}

bool fuses_gelu_backward(const PackedWeight& weight, int64_t rows, GeluKind kind) {
  return !weight.weight().is_cpu() && device_fuses_gelu_backward(weight.weight(), rows, kind);
}

void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& bias_gradient) {
  if (!dy.is_cpu()) {
    device_add_weight_gradient(gradient, dy, x, bias_gradient);
    return;
  }
  if (dy.size(0) == 0) {
    return;
  }
  const LongWork computes;
  if (bias_gradient.defined()) {
    add_column_sums(bias_gradient, dy);
  }
  switch (choose_product_kernel(dy, x.size(1))) {
    case ProductKernel::kBlocked:
      blocked_add_weight_gradient(gradient, dy.contiguous(), x.contiguous());
      break;
    case ProductKernel::kConverted:
      add_converted_weight_gradient(gradient, dy, x);
      break;
    default:
      add_library_weight_gradient(gradient, dy, x);
  }
}

HostLayerBytes host_layer_bytes(const HostLayer& layer, const HostLayerUse& use, ProductKernel fp32, int threads) {
  const int64_t rows = layer.rows, outputs = layer.outputs, inputs = layer.inputs;
  const auto size = [](int64_t elements, at::ScalarType type) {
    return elements * static_cast<int64_t>(at::elementSize(type));
  };
  const int64_t sums = num_column_sum_blocks(rows) * size(outputs, at::toOpMathType(use.type));
  if (use.type == at::kFloat || use.type == at::kBFloat16) {
    const bool is_large = use.type == at::kBFloat16 || is_large_product(rows, outputs, inputs);
    if (is_large && (use.type == at::kFloat ? fp32 : kernel_of_type(use.type)) == kBlocked) {
      const int64_t of_threads = threads * blocked_thread_bytes(use.type, use.gradient, outputs, inputs);
      return {size(panels_size(inputs, outputs, use.type), use.type) +
                  (use.has_input_gradient ? size(panels_size(outputs, inputs, use.type), use.type) : 0),
              std::max(sums, size(panels_size(rows, inputs, use.type), use.type) + of_threads)};
    }
  }
  if (use.type == at::kFloat || use.type == at::kDouble) {
    return {0, sums};
  }
  // Converted: the weight, and beside each product its operands and its result.
  HostLayerUse wide = use;
  wide.type = wide.gradient = at::kFloat;
  const HostLayerBytes in_fp32 = host_layer_bytes(layer, wide, fp32, threads);
  const int64_t x = size(rows * inputs, at::kFloat), y = size(rows * outputs, at::kFloat);
  const int64_t forward = std::max(x + y, use.has_gelu ? 2 * y : 0);
  const int64_t own_gradient = use.gradient == at::kFloat ? 0 : size(outputs * inputs, at::kFloat);
  const int64_t bias = use.type == at::kHalf ? y + sums : sums;
  return {size(outputs * inputs, at::kFloat) + in_fp32.packed,
          std::max({forward, bias, x + y + own_gradient + in_fp32.working})};
}

HostLayer measured_part(HostLayer layer, int threads) {
  // Some milliseconds of a thread's work in each product.
  constexpr int64_t kRowsPerThread = 256, kOutputsStep = 64;
  constexpr double kFlopsPerThread = 3e8;
  layer.rows = std::min(layer.rows, kRowsPerThread * threads);
  const double outputs =
      threads * kFlopsPerThread / (2.0 * static_cast<double>(layer.rows) * static_cast<double>(layer.inputs));
  if (outputs < static_cast<double>(layer.outputs)) {
    const auto whole = static_cast<int64_t>(outputs) / kOutputsStep * kOutputsStep;
    layer.outputs = std::min(layer.outputs, std::max(whole, kOutputsStep));
  }
  return layer;
}

std::function<double(ProductKernel)> host_kernel_timer(const HostLayer& layer) {
  const auto filled = [](at::IntArrayRef sizes) {  // any numbers will do
    const MemoryScope scope(MemoryClass::kWorkspaces);
    return at::full(sizes, 0.37, at::kFloat);
  };
  const bool has_backward = layer.passes == HostLayer::Passes::kForwardAndBackward;
  const auto weight = std::make_shared<PackedWeight>(filled({layer.outputs, layer.inputs}));
  const at::Tensor x = filled({layer.rows, layer.inputs}), bias = filled({layer.outputs});
  const at::Tensor dy = has_backward ? filled({layer.rows, layer.outputs}) : at::Tensor();
  const at::Tensor gradient = has_backward ? filled({layer.outputs, layer.inputs}) : at::Tensor();
  return [=, version = int64_t{0}](ProductKernel kernel) mutable {
    HostKernel before = host_kernel();
    set_host_kernel({kernel, {}});
    const MemoryScope scope(MemoryClass::kWorkspaces);
    const Timer packing;
    double seconds = 0.0;
    if (kernel == kBlocked && layer.rows_per_packing > 0) {
      weight->forward_panels(++version);
      if (has_backward) {
        weight->backward_panels(version);
      }
      seconds = packing.seconds() * static_cast<double>(layer.rows) / static_cast<double>(layer.rows_per_packing);
    }
    const Timer timer;
    linear_forward(x, *weight, version, bias);
    if (has_backward) {
      linear_backward_input(dy, *weight, version);
      add_weight_gradient(gradient, dy, x, {});
    }
    seconds += timer.seconds();
    set_host_kernel(std::move(before));
    return 1e6 * seconds;
  };
}

}  // namespace vit_hybrid::kernels
