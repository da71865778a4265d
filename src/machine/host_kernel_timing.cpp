// Rounds of products, in step with the other ranks.
#include "src/machine/host_kernel_timing.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "parallel/comm/agreement.h"
#include "src/base/memory_tracker.h"
#include "src/base/timer.h"
#include "src/kernels/gemm/matmul.h"

namespace vit_hybrid::train {

namespace {

// Some milliseconds of a thread's work in each product.
constexpr int64_t kRowsPerThread = 256;
constexpr double kFlopsPerThread = 3e8;
constexpr int64_t kOutputsStep = 64;

// So many rounds are measured where they fit into this time: few where ranks share cores and each round takes long.
constexpr int kGoodRounds = 3;
constexpr double kMostSeconds = 0.2;
constexpr int kMostRounds = 10;
constexpr double kEnoughSeconds = 0.1;

// Any numbers will do.
at::Tensor filled(int64_t rows, int64_t columns) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  return at::full({rows, columns}, 0.37, at::kFloat);
}

// The kernel of the process is another one for as long as this lives.
class KernelScope {
 public:
  explicit KernelScope(kernels::ProductKernel kernel) : before_(kernels::host_kernel()) {
    kernels::set_host_kernel({kernel, {}});
  }
  ~KernelScope() { kernels::set_host_kernel(std::move(before_)); }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  kernels::HostKernel before_;
};

double sum_over_ranks(double microseconds, const comm::MpiGroup& world) {
  const bool is_time = std::isfinite(microseconds) && microseconds > 0.0;
  const int64_t nanoseconds = world.sum(is_time ? std::llround(1e3 * microseconds) : 0);
  const bool is_known = world.min(is_time ? 1 : 0) == 1;
  return is_known ? 1e-3 * static_cast<double>(nanoseconds) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

HostLayer measured_part(HostLayer layer, int threads) {
  layer.rows = std::min(layer.rows, kRowsPerThread * threads);
  const double outputs =
      threads * kFlopsPerThread / (2.0 * static_cast<double>(layer.rows) * static_cast<double>(layer.inputs));
  if (outputs < static_cast<double>(layer.outputs)) {
    const auto whole = static_cast<int64_t>(outputs) / kOutputsStep * kOutputsStep;
    layer.outputs = std::min(layer.outputs, std::max(whole, kOutputsStep));
  }
  return layer;
}

HostKernelTimer::HostKernelTimer(const HostLayer& layer)
    : layer_(layer),
      x_(filled(layer.rows, layer.inputs)),
      bias_(filled(1, layer.outputs).reshape({layer.outputs})),
      weight_(filled(layer.outputs, layer.inputs)) {
  if (layer.passes == HostLayer::Passes::kForwardAndBackward) {
    dy_ = filled(layer.rows, layer.outputs);
    gradient_ = filled(layer.outputs, layer.inputs);
  }
}

double HostKernelTimer::microseconds(kernels::ProductKernel kernel) {
  const KernelScope kernel_scope(kernel);
  const MemoryScope memory_scope(MemoryClass::kWorkspaces);
  double seconds = 0.0;
  if (kernel == kernels::ProductKernel::kBlocked && layer_.rows_per_packing > 0) {
    const Timer timer;
    pack();
    seconds = timer.seconds() * static_cast<double>(layer_.rows) / static_cast<double>(layer_.rows_per_packing);
  }
  const Timer timer;
  multiply();
  return 1e6 * (seconds + timer.seconds());
}

void HostKernelTimer::pack() {
  ++version_;
  weight_.forward_panels(version_);
  if (layer_.passes == HostLayer::Passes::kForwardAndBackward) {
    weight_.backward_panels(version_);
  }
}

void HostKernelTimer::multiply() {
  kernels::linear_forward(x_, weight_, version_, bias_);
  if (layer_.passes == HostLayer::Passes::kForwardAndBackward) {
    kernels::linear_backward_input(dy_, weight_, version_);
    kernels::add_weight_gradient(gradient_, dy_, x_, {});
  }
}

std::vector<double> microseconds_of_all_ranks(size_t count, const std::function<double(size_t candidate)>& measure,
                                              const comm::MpiGroup& world) {
  std::vector<double> least(count, std::numeric_limits<double>::infinity());
  const Timer timer;
  const auto is_over = [&](double seconds) { return world.max(timer.seconds() < seconds ? 0 : 1) != 0; };
  // The first round starts threads, generates kernels and touches memory.
  const auto goes_on = [&](int round) {
    return round <= 1 || (round <= kMostRounds && !is_over(round <= kGoodRounds ? kMostSeconds : kEnoughSeconds));
  };
  for (int round = 0; goes_on(round); ++round) {
    for (size_t i = 0; i < count; ++i) {
      const double microseconds = comm::agreed(world, [&] { return measure(i); });
      least[i] = round == 0 ? least[i] : std::min(least[i], microseconds);
    }
  }
  for (double& microseconds : least) {
    microseconds = sum_over_ranks(microseconds, world);
  }
  return least;
}

}  // namespace vit_hybrid::train
