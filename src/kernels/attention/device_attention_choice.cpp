// Which attention kernel takes what, and the choice among them by measuring.
#include "src/kernels/attention/device_attention_choice.h"

#include <ATen/ops/randn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/kernels/attention/device_attention_passes.h"
#include "src/kernels/gemm/device_products.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int kAmpere = 80;
constexpr int kHopper = 90;
// Before this one, cuDNN's backward was wrong where the tokens are no multiple of 128.
constexpr int64_t kSafeCudnn = 91501;
constexpr int64_t kSafeTokens = 128;
constexpr int64_t kOldestCudnn = 90000;

constexpr std::array kKernels = {DeviceAttention::kFlash, DeviceAttention::kEfficient, DeviceAttention::kCudnn,
                                 DeviceAttention::kComposite};

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

// Of both passes.
KernelTime measure(const AttentionProblem& problem, c10::Device device, DeviceAttention kernel, SumOrder order) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const auto options = at::TensorOptions(problem.type).device(device);
  const int64_t dim = problem.heads * problem.head_dim;
  const at::Tensor qkv = at::randn({problem.samples, problem.tokens, 3 * dim}, options);
  const at::Tensor dout = at::randn({problem.samples, problem.tokens, dim}, options);
  return device_time([&] {
    const AttentionPass pass = attention_forward(qkv, problem.heads, kernel, Passes::kBoth);
    attention_backward(dout, qkv, problem.heads, kernel, order, pass);
  });
}

// What comes in the name before and after the number of samples.
constexpr std::string_view kNameBegin = "attention B";

std::string name_end(const AttentionProblem& problem) {
  return str(" N", problem.tokens, " h", problem.heads, " d", problem.head_dim, " ", short_name(problem.type));
}

// The number of samples in the name of a problem that is like this one but for that.
std::optional<int64_t> samples_of(std::string_view name, std::string_view end) {
  if (!name.starts_with(kNameBegin) || !name.ends_with(end)) {
    return std::nullopt;
  }
  const char* const begin = name.data() + kNameBegin.size();
  const char* const wanted_end = name.data() + name.size() - end.size();
  int64_t samples = 0;
  const auto [last, error] = std::from_chars(begin, wanted_end, samples);
  return error == std::errc() && last == wanted_end ? std::optional(samples) : std::nullopt;
}

std::optional<DeviceAttention> kernel_named(const std::string& name) {
  for (const DeviceAttention kernel : kKernels) {
    if (device_attention_name(kernel) == name) {
      return kernel;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string device_attention_name(DeviceAttention kernel) {
  switch (kernel) {
    case DeviceAttention::kFlash:
      return "flash";
    case DeviceAttention::kEfficient:
      return "efficient";
    case DeviceAttention::kCudnn:
      return "cudnn";
    case DeviceAttention::kComposite:
      return "composite";
  }
  return "";
}

std::string AttentionProblem::name() const {
  return str(kNameBegin, samples, name_end(*this));
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
  if (efficient_takes(problem, traits)) {
    kernels.push_back(DeviceAttention::kEfficient);
  }
  if (kernels.empty()) {
    kernels.push_back(DeviceAttention::kComposite);
  }
  return kernels;
}

std::optional<DeviceAttention> find_attention(const KernelTable& table, const AttentionProblem& problem) {
  if (const KernelChoice* choice = table.find(problem.name())) {
    return kernel_named(choice->kernel);
  }
  const std::string end = name_end(problem);
  const KernelChoice* nearest = nullptr;
  int64_t nearest_samples = 0;
  for (const auto& [name, choice] : table.choices()) {
    const auto samples = samples_of(name, end);
    if (!samples) {
      continue;
    }
    const int64_t distance = std::abs(*samples - problem.samples), least = std::abs(nearest_samples - problem.samples);
    if (nearest == nullptr || distance < least || (distance == least && *samples > nearest_samples)) {
      nearest = &choice;
      nearest_samples = *samples;
    }
  }
  return nearest == nullptr ? std::nullopt : kernel_named(nearest->kernel);
}

DeviceAttention chosen_attention(const AttentionProblem& problem, c10::Device device) {
  if (const auto kernel = find_attention(kernel_table(), problem)) {
    return *kernel;
  }
  return device_attentions(problem, device_traits(device), device_kernel_options().order).front();
}

void measure_attention(const AttentionProblem& problem, c10::Device device) {
  const DeviceTraits& traits = device_traits(device);
  const SumOrder order = device_kernel_options().order;
  const auto kernels = device_attentions(problem, traits, order);
  if (kernels.front() == DeviceAttention::kComposite) {
    const std::string name = device_attention_name(DeviceAttention::kComposite);
    kernel_table().choose(problem.name(), {name, "the only one that takes it", 0.0, 0.0});
    return;
  }
  wake_device(device);
  std::vector<std::pair<std::string, KernelTime>> times;
  for (const DeviceAttention kernel : kernels) {
    times.emplace_back(device_attention_name(kernel), measure(problem, device, kernel, order));
  }
  KernelChoice choice = fastest_kernel(problem.name(), times);
  if (order == SumOrder::kFixed) {
    for (const DeviceAttention kernel : device_attentions(problem, traits, SumOrder::kAny)) {
      choice.fastest = std::min(choice.fastest, measure(problem, device, kernel, SumOrder::kAny).microseconds);
    }
  }
  kernel_table().choose(problem.name(), std::move(choice));
}

std::string device_attention_text(c10::Device device, at::ScalarType type) {
  std::set<std::string> kernels;
  std::string times;
  for (const auto& [problem, choice] : kernel_table().choices()) {
    const bool is_of_type = problem.rfind("attention", 0) == 0 && problem.ends_with(" " + short_name(type));
    if (is_of_type) {
      kernels.insert(choice.kernel);
      times = choice.text;
    }
  }
  if (!kernels.empty()) {
    return str(join(kernels), " by measuring (", times, ")");
  }
  const auto allowed =
      device_attentions({1, kSafeTokens, 1, 64, type}, device_traits(device), device_kernel_options().order);
  return str(device_attention_name(allowed.front()), ": nothing was measured");
}

}  // namespace vit_hybrid::kernels
