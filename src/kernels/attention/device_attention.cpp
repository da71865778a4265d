// One autograd node with a hand-written backward around LibTorch's kernels, and the choice among them by measuring.
// Shapes: B samples, N tokens, h heads of d features.
#include "src/kernels/attention/device_attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>

#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/kernels/attention/short_attention_cuda.h"

namespace vit_hybrid::kernels {

namespace {

// LibTorch's flash backward adds in a fixed order where its process-wide switch is on. The switch is not left on: it
// would also fill every new tensor with NaN.
class FixedOrderScope {
 public:
  explicit FixedOrderScope(SumOrder order)
      : is_on_(order == SumOrder::kFixed),
        algorithms_(at::globalContext().deterministicAlgorithms()),
        warns_(at::globalContext().deterministicAlgorithmsWarnOnly()),
        fills_(at::globalContext().deterministicFillUninitializedMemory()) {
    if (is_on_) {
      at::globalContext().setDeterministicAlgorithms(true, false);
      at::globalContext().setDeterministicFillUninitializedMemory(false);
    }
  }
  ~FixedOrderScope() {
    if (is_on_) {
      at::globalContext().setDeterministicAlgorithms(algorithms_, warns_);
      at::globalContext().setDeterministicFillUninitializedMemory(fills_);
    }
  }
  FixedOrderScope(const FixedOrderScope&) = delete;
  FixedOrderScope& operator=(const FixedOrderScope&) = delete;

 private:
  bool is_on_, algorithms_, warns_, fills_;
};

// q, k or v as [B, N, h, d].
at::Tensor part_BNhd(const at::Tensor& qkv, int64_t num_heads, int64_t part) {
  const int64_t head_dim = qkv.size(2) / (3 * num_heads);
  return qkv.view({qkv.size(0), qkv.size(1), 3, num_heads, head_dim}).select(2, part);
}

// The gradients of q, k and v, each [B, N, h, d], as one tensor like qkv. No copy where they already are its thirds, as
// the efficient kernel writes them; flash's and cuDNN's are three tensors.
at::Tensor joined(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& qkv) {
  const int64_t width = qkv.size(2), third = width / 3;
  const auto is_third = [&](const at::Tensor& gradient, int64_t index) {
    return gradient.is_alias_of(dq) && gradient.storage_offset() == dq.storage_offset() + index * third &&
           gradient.stride(0) == qkv.size(1) * width && gradient.stride(1) == width &&
           gradient.stride(2) == gradient.size(3) && gradient.stride(3) == 1;
  };
  if (is_third(dq, 0) && is_third(dk, 1) && is_third(dv, 2)) {
    return dq.as_strided(qkv.sizes(), {qkv.size(1) * width, width, 1}, dq.storage_offset());
  }
  return device_qkv_gradient(dq, dk, dv);
}

AttentionPass efficient_forward(const at::Tensor& qkv, int64_t num_heads, Passes passes) {
  auto result = at::_efficient_attention_forward(part_BNhd(qkv, num_heads, 0), part_BNhd(qkv, num_heads, 1),
                                                 part_BNhd(qkv, num_heads, 2), std::nullopt, std::nullopt, std::nullopt,
                                                 std::nullopt, std::nullopt, 0.0, 0, passes == Passes::kBoth);
  return {std::get<0>(result).transpose(1, 2), std::get<1>(result), std::get<2>(result), std::get<3>(result)};
}

at::Tensor efficient_backward(const at::Tensor& dout, const at::Tensor& qkv, int64_t num_heads, SumOrder order,
                              const AttentionPass& pass) {
  const int64_t num_tokens = qkv.size(1);
  const at::Tensor q = part_BNhd(qkv, num_heads, 0);
  // Several parts of the keys would add to the gradient of q at the same time.
  const auto parts = order == SumOrder::kFixed ? std::optional<int64_t>(1) : std::nullopt;
  const auto gradients = at::_efficient_attention_backward(
      dout.view(q.sizes()), q, part_BNhd(qkv, num_heads, 1), part_BNhd(qkv, num_heads, 2), std::nullopt,
      pass.out_BhNd.transpose(1, 2), std::nullopt, std::nullopt, num_tokens, num_tokens, pass.logsumexp, 0.0, pass.seed,
      pass.offset, 0, false, std::nullopt, parts, std::nullopt, true);
  return joined(std::get<0>(gradients), std::get<1>(gradients), std::get<2>(gradients), qkv);
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor joined_by_heads(const Gradients& gradients, const at::Tensor& qkv) {
  return joined(std::get<0>(gradients).transpose(1, 2), std::get<1>(gradients).transpose(1, 2),
                std::get<2>(gradients).transpose(1, 2), qkv);
}

at::Tensor composite_attention(const at::Tensor& qkv, int64_t num_heads) {
  const auto [q, k, v] = split_heads(qkv, num_heads);
  return merge_heads(at::scaled_dot_product_attention(q, k, v));
}

constexpr int kAmpere = 80;
constexpr int kHopper = 90;
// Before this one, cuDNN's backward was wrong where the tokens are no multiple of 128.
constexpr int64_t kSafeCudnn = 91501;
constexpr int64_t kSafeTokens = 128;
constexpr int64_t kOldestCudnn = 90000;

constexpr std::array kNames = {"flash", "efficient", "cudnn", "short", "composite"};  // in the order of DeviceAttention

bool is_half(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

bool flash_takes(const AttentionProblem& problem, const DeviceTraits& traits) {
  // Its backward wants more shared memory for large heads than A100 and H100 alone have.
  const bool is_large = traits.capability == kAmpere || (traits.capability >= kHopper && traits.capability < 120);
  return traits.capability >= kAmpere && is_half(problem.type) && problem.head_dim % 8 == 0 &&
         problem.head_dim <= (is_large ? 256 : 192);
}

bool cudnn_takes(const AttentionProblem& problem, const DeviceTraits& traits) {
  const bool is_right = traits.cudnn_version >= kSafeCudnn || problem.tokens % kSafeTokens == 0;
  return traits.capability >= kAmpere && traits.cudnn_version >= kOldestCudnn && is_right && is_half(problem.type) &&
         problem.head_dim % 8 == 0 && problem.head_dim <= 128 && problem.tokens > 1;
}

bool efficient_takes(const AttentionProblem& problem, const DeviceTraits& traits) {
  if (problem.type == at::kDouble || (problem.type == at::kBFloat16 && traits.capability < kAmpere)) {
    return false;
  }
  const int64_t multiple = is_half(problem.type) ? 8 : traits.capability >= kAmpere ? 4 : 1;
  return problem.head_dim % multiple == 0;
}

// Shared memory that a block may have (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
int64_t shared_bytes(int capability) {
  const bool has_most = capability == kHopper || (capability >= 100 && capability < 120);
  return (has_most ? 227 : capability == kAmpere || capability == 87 ? 163 : 99) * int64_t{1024};
}

bool short_takes(const AttentionProblem& problem, const DeviceTraits& traits) {
  return traits.capability >= kAmpere && is_half(problem.type) && has_short_attention(problem.head_dim) &&
         short_attention_backward_bytes(problem.tokens, problem.head_dim) <= shared_bytes(traits.capability);
}

// The fastest of those that take the problem in that order, both passes together.
KernelChoice fastest_attention(const AttentionProblem& problem, c10::Device device, SumOrder order) {
  const auto kernels = device_attentions(problem, device_traits(device), order);
  std::vector<std::string> names;
  std::transform(kernels.begin(), kernels.end(), std::back_inserter(names), &device_attention_name);
  const auto measure = [&](size_t number) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    const auto options = at::TensorOptions(problem.type).device(device);
    const int64_t dim = problem.heads * problem.head_dim;
    const at::Tensor qkv = at::randn({problem.samples, problem.tokens, 3 * dim}, options);
    const at::Tensor dout = at::randn({problem.samples, problem.tokens, dim}, options);
    return device_microseconds([&] {
      const AttentionPass pass = attention_forward(qkv, problem.heads, kernels[number], Passes::kBoth);
      attention_backward(dout, qkv, problem.heads, kernels[number], order, pass);
    });
  };
  return fastest_kernel(problem.name(), names, measure, &synchronize_device);
}

constexpr std::string_view kNameBegin = "attention B";

// The choices for a type, and how long the candidates of the last one took.
struct Chosen {
  std::set<std::string> kernels;
  std::string times;
};

Chosen chosen_for(at::ScalarType type) {
  Chosen chosen;
  for (const auto& [problem, choice] : kernel_table().choices) {
    if (problem.starts_with(kNameBegin) && problem.ends_with(" " + short_name(type))) {
      chosen.kernels.insert(choice.kernel);
      chosen.times = choice.text;
    }
  }
  return chosen;
}

std::optional<DeviceAttention> kernel_named(const std::string& name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? std::nullopt : std::optional(static_cast<DeviceAttention>(found - kNames.begin()));
}

}  // namespace

AttentionPass attention_forward(const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel, Passes passes) {
  const auto [q, k, v] = split_heads(qkv, num_heads);
  switch (kernel) {
    case DeviceAttention::kFlash: {
      const auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, false, false);
      return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
    }
    case DeviceAttention::kCudnn: {
      const auto result =
          at::_scaled_dot_product_cudnn_attention(q, k, v, std::nullopt, passes == Passes::kBoth, 0.0, false, false);
      return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
    }
    case DeviceAttention::kEfficient:
      return efficient_forward(qkv, num_heads, passes);
    case DeviceAttention::kShort:
      return device_short_attention(qkv, num_heads, passes);
    case DeviceAttention::kComposite:
      break;
  }
  fail_invariant("a fused kernel", __FILE__, __LINE__, device_attention_name(kernel));
}

at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel,
                              SumOrder order, const AttentionPass& pass) {
  const int64_t num_tokens = qkv.size(1);
  const auto [q, k, v] = split_heads(qkv, num_heads);
  const at::Tensor dout_BhNd = heads_of(dout, num_heads);
  const at::Tensor none;
  switch (kernel) {
    case DeviceAttention::kFlash: {
      const FixedOrderScope scope(order);
      return joined_by_heads(at::_scaled_dot_product_flash_attention_backward(
                                 dout_BhNd, q, k, v, pass.out_BhNd, pass.logsumexp, none, none, num_tokens, num_tokens,
                                 0.0, false, pass.seed, pass.offset),
                             qkv);
    }
    case DeviceAttention::kCudnn:
      return joined_by_heads(at::_scaled_dot_product_cudnn_attention_backward(
                                 dout_BhNd, q, k, v, pass.out_BhNd, pass.logsumexp, pass.seed, pass.offset, none, none,
                                 none, num_tokens, num_tokens, 0.0, false),
                             qkv);
    case DeviceAttention::kEfficient:
      return efficient_backward(dout, qkv, num_heads, order, pass);
    case DeviceAttention::kShort:
      return device_short_attention_backward(dout, qkv, num_heads, pass);
    case DeviceAttention::kComposite:
      break;
  }
  fail_invariant("a fused kernel", __FILE__, __LINE__, device_attention_name(kernel));
}

at::Tensor device_attention(const at::Tensor& qkv, int64_t num_heads) {
  const AttentionProblem problem{qkv.size(0), qkv.size(1), num_heads, qkv.size(2) / (3 * num_heads), qkv.scalar_type()};
  const auto chosen = find_attention(kernel_table(), problem);
  const auto first = [&] {
    return device_attentions(problem, device_traits(qkv.device()), device_kernel_options().order).front();
  };
  return device_attention(qkv, num_heads, chosen ? *chosen : first());
}

at::Tensor device_attention(const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel) {
  if (kernel == DeviceAttention::kComposite) {
    return composite_attention(qkv, num_heads);
  }
  const Passes passes = records({qkv}) ? Passes::kBoth : Passes::kForwardOnly;
  const AttentionPass pass = without_grad([&] { return attention_forward(qkv, num_heads, kernel, passes); });
  const auto backward = [qkv, num_heads, kernel, pass](const at::Tensor& dout) {
    return std::vector<at::Tensor>{
        attention_backward(dout.contiguous(), qkv, num_heads, kernel, device_kernel_options().order, pass)};
  };
  return record("device_attention", merge_heads(pass.out_BhNd), {qkv}, backward);
}

std::string device_attention_name(DeviceAttention kernel) {
  return kNames.at(static_cast<size_t>(kernel));
}

std::string AttentionProblem::name() const {
  return str(kNameBegin, samples, " N", tokens, " h", heads, " d", head_dim, " ", short_name(type));
}

double AttentionProblem::flops() const {
  // Two products forward, four backward, of N x N x d for each sample and head.
  return 6.0 * 2.0 * static_cast<double>(samples * heads * head_dim) * static_cast<double>(tokens) *
         static_cast<double>(tokens);
}

std::vector<DeviceAttention> device_attentions(const AttentionProblem& problem, const DeviceTraits& traits,
                                               SumOrder order) {
  std::vector<DeviceAttention> kernels;
  if (flash_takes(problem, traits)) {
    kernels.push_back(DeviceAttention::kFlash);
  }
  // cuDNN's backward adds to the gradient of q in any order.
  if (order == SumOrder::kAny && cudnn_takes(problem, traits)) {
    kernels.insert(traits.capability >= kHopper ? kernels.begin() : kernels.end(), DeviceAttention::kCudnn);
  }
  if (short_takes(problem, traits)) {
    kernels.insert(kernels.begin(), DeviceAttention::kShort);
  }
  if (efficient_takes(problem, traits)) {
    kernels.push_back(DeviceAttention::kEfficient);
  }
  if (kernels.empty()) {
    kernels.push_back(DeviceAttention::kComposite);
  }
  return kernels;
}

std::optional<DeviceAttention> find_attention(const KernelTable& table, const AttentionProblem& problem) {
  if (const KernelChoice* const choice = table.find(problem.name())) {
    return kernel_named(choice->kernel);
  }
  const KernelChoice* nearest = nullptr;
  int64_t samples = 0;  // of the nearest
  AttentionProblem other = problem;
  for (const auto& [name, choice] : table.choices) {
    other.samples = name.starts_with(kNameBegin) ? std::atoll(name.c_str() + kNameBegin.size()) : 0;
    const int64_t distance = std::abs(other.samples - problem.samples), least = std::abs(samples - problem.samples);
    const bool is_nearer = distance < least || (distance == least && other.samples > samples);
    if (other.name() == name && (nearest == nullptr || is_nearer)) {
      nearest = &choice;
      samples = other.samples;
    }
  }
  return nearest == nullptr ? std::nullopt : kernel_named(nearest->kernel);
}

void measure_attention(const AttentionProblem& problem, c10::Device device) {
  const SumOrder order = device_kernel_options().order;
  KernelChoice choice{"composite", "the only one that takes it", 0.0, 0.0};
  if (device_attentions(problem, device_traits(device), order).front() != DeviceAttention::kComposite) {
    choice = fastest_attention(problem, device, order);
    if (order == SumOrder::kFixed) {
      choice.fastest = std::min(choice.fastest, fastest_attention(problem, device, SumOrder::kAny).microseconds);
    }
  }
  kernel_table().choices[problem.name()] = choice;
}

std::string device_attention_text(c10::Device device, at::ScalarType type) {
  const Chosen chosen = chosen_for(type);
  if (!chosen.kernels.empty()) {
    return str(join(chosen.kernels), " by measuring (", chosen.times, ")");
  }
  const auto allowed =
      device_attentions({1, kSafeTokens, 1, 64, type}, device_traits(device), device_kernel_options().order);
  return str(device_attention_name(allowed.front()), ": nothing was measured");
}

int64_t device_attention_tile(at::ScalarType type) {
  constexpr int64_t kTileOfLibraries = 64;
  const bool is_short = chosen_for(type).kernels == std::set{device_attention_name(DeviceAttention::kShort)};
  return is_short ? kShortAttentionTile : kTileOfLibraries;
}

}  // namespace vit_hybrid::kernels
