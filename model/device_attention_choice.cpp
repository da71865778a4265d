// Which attention kernel takes what, and the choice among them by measuring.
#include <ATen/ops/randn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <limits>
#include <set>

#include "model/device_attention.h"
#include "model/device_attention_passes.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

namespace {

using tensor::DeviceTraits;
using tensor::SumOrder;

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

// Microseconds of both passes; infinite where the library refuses after all.
double measure(const AttentionProblem& problem, c10::Device device, DeviceAttention kernel, SumOrder order) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const auto options = at::TensorOptions(problem.type).device(device);
  const int64_t dim = problem.heads * problem.head_dim;
  const at::Tensor qkv = at::randn({problem.samples, problem.tokens, 3 * dim}, options);
  const at::Tensor dout = at::randn({problem.samples, problem.tokens, dim}, options);
  try {
    return tensor::device_microseconds([&] {
      const AttentionPass pass = attention_forward(qkv, problem.heads, kernel, Passes::kBoth);
      attention_backward(dout, qkv, problem.heads, kernel, order, pass);
    });
  } catch (const std::exception&) {
    return std::numeric_limits<double>::infinity();
  }
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
  return str("attention B", samples, " N", tokens, " h", heads, " d", head_dim, " ", tensor::short_name(type));
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

DeviceAttention chosen_attention(const AttentionProblem& problem, c10::Device device) {
  if (const tensor::KernelChoice* choice = tensor::kernel_table().find(problem.name())) {
    for (const DeviceAttention kernel : kKernels) {
      if (device_attention_name(kernel) == choice->kernel) {
        return kernel;
      }
    }
  }
  return device_attentions(problem, tensor::device_traits(device), tensor::device_kernel_options().order).front();
}

void measure_attention(const AttentionProblem& problem, c10::Device device) {
  const DeviceTraits& traits = tensor::device_traits(device);
  const SumOrder order = tensor::device_kernel_options().order;
  const auto kernels = device_attentions(problem, traits, order);
  tensor::KernelChoice choice;
  choice.kernel = device_attention_name(kernels.front());
  if (kernels.front() == DeviceAttention::kComposite) {
    choice.text = "the only one that takes it";
    tensor::kernel_table().choose(problem.name(), choice);
    return;
  }
  choice.microseconds = std::numeric_limits<double>::infinity();
  std::vector<std::string> times;
  for (const DeviceAttention kernel : kernels) {
    const double microseconds = measure(problem, device, kernel, order);
    times.push_back(str(device_attention_name(kernel), " ", std::round(microseconds), " us"));
    if (microseconds < choice.microseconds) {
      choice.kernel = device_attention_name(kernel);
      choice.microseconds = microseconds;
    }
  }
  if (std::isinf(choice.microseconds)) {
    throw Error(ErrorClass::kInternal, str(problem.name(), " on ", traits.name, ": no kernel ran: ", join(times)));
  }
  choice.fastest = choice.microseconds;
  if (order == SumOrder::kFixed) {
    for (const DeviceAttention kernel : device_attentions(problem, traits, SumOrder::kAny)) {
      choice.fastest = std::min(choice.fastest, measure(problem, device, kernel, SumOrder::kAny));
    }
  }
  choice.text = join(times);
  tensor::kernel_table().choose(problem.name(), choice);
}

std::string device_attention_text(c10::Device device, at::ScalarType type) {
  std::set<std::string> kernels;
  std::string times;
  for (const auto& [problem, choice] : tensor::kernel_table().choices()) {
    const bool is_of_type = problem.rfind("attention", 0) == 0 && problem.ends_with(" " + tensor::short_name(type));
    if (is_of_type) {
      kernels.insert(choice.kernel);
      times = choice.text;
    }
  }
  if (!kernels.empty()) {
    return str(join(kernels), " by measuring (", times, ")");
  }
  const auto allowed = device_attentions({1, kSafeTokens, 1, 64, type}, tensor::device_traits(device),
                                         tensor::device_kernel_options().order);
  return str(device_attention_name(allowed.front()), ": nothing was measured");
}

}  // namespace vit_hybrid::model
