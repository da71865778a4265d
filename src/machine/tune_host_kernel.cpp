// Rounds of products, in step with the other ranks, and what they decide.
#include "src/machine/tune_host_kernel.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "parallel/comm/agreement.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/kernels/gemm/matmul.h"
#include "src/kernels/gemm/product_kernel.h"
#include "src/kernels/gemm/small_product.h"

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

namespace {

using kernels::KernelTable;
using kernels::ProductKernel;

// The same kernel on all ranks, and whether they have another one too.
struct UsualKernel {
  kernels::HostKernel kernel;
  bool has_other = false;
};

UsualKernel usual_kernel(const comm::MpiGroup& world) {
  const kernels::HostKernel own = kernels::usual_host_kernel();
  const bool has_other = kernels::has_block_kernel();
  if (world.min(has_other ? 1 : 0) == 0) {
    return {has_other
                ? kernels::HostKernel{kernels::ProductKernel::kLibrary, "not all ranks have oneDNN's block kernel"}
                : own,
            false};
  }
  auto kernel = own.kernel;
  world.broadcast(&kernel, sizeof(kernel), 0);
  return {kernel == own.kernel ? own : kernels::HostKernel{kernel, "as on rank 0"}, true};
}

bool is_host_kernel(const std::string& name) {
  const auto kernel = kernels::kernel_named(name);
  return kernel == kernels::ProductKernel::kBlocked || kernel == kernels::ProductKernel::kLibrary;
}

// The choice of --deterministic, put into kernel_table(); one line if an earlier start had another kernel.
std::string choose_usual(kernels::ProductKernel usual) {
  kernels::KernelTable& table = kernels::kernel_table();
  const auto* const saved = table.find(kernels::kHostProblem);
  const std::string name = kernels::kernel_name(usual);
  const std::string text =
      saved == nullptr || saved->kernel == name
          ? ""
          : str("--deterministic: fp32 products by the usual kernel, '", name, "', instead of the saved one, '",
                saved->kernel, "': from here on the bits differ");
  table.choose(kernels::kHostProblem,
               kernels::unmeasured_host_kernel(usual, "--deterministic", kernels::processor_maker_text()));
  return text;
}

// On rank 0: a choice that needs no measuring, put into kernel_table() if there is one; what is said of the saved one.
std::string choose_unmeasured(const HostProblem& problem, kernels::ProductKernel usual, const std::string& saved,
                              SavedKernels use) {
  const std::string of_saved = begin_kernel_table(problem.machine, {kernels::kHostProblem}, saved, use);
  if (problem.order == kernels::SumOrder::kFixed) {
    return choose_usual(usual);
  }
  kernels::KernelTable& table = kernels::kernel_table();
  if (const auto* const choice = table.find(kernels::kHostProblem);
      choice != nullptr && !is_host_kernel(choice->kernel)) {
    const std::string text = str(", the saved one, '", choice->kernel, "', is not known to this version");
    table.forget(kernels::kHostProblem);
    return text;
  }
  return of_saved;
}

kernels::KernelChoice measure_host_kernel(const HostLayer& layer, kernels::ProductKernel usual,
                                          const comm::MpiGroup& world) {
  constexpr std::array kKernels = {kernels::ProductKernel::kBlocked, kernels::ProductKernel::kLibrary};
  std::optional<HostKernelTimer> timer;
  comm::agreed(world, [&] { timer.emplace(measured_part(layer, at::get_num_threads())); });
  const auto times = microseconds_of_all_ranks(
      kKernels.size(), [&](size_t i) { return timer->microseconds(kKernels[i]); }, world);
  return kernels::choose_host_kernel(usual, {times[0], times[1]}, kernels::processor_maker_text());
}

// On rank 0: the choice of the checkpoint, of --deterministic or of the store, put into kernel_table() if there is one.
TuningReport choose_known(const HostProblem& problem, kernels::ProductKernel usual, const std::string& saved,
                          SavedKernels use, HostKernelStore* store) {
  kernels::KernelTable& table = kernels::kernel_table();
  TuningReport report;
  report.text = choose_unmeasured(problem, usual, saved, use);
  if (problem.order == kernels::SumOrder::kFixed) {
    return report;
  }
  report.num_saved = static_cast<int>(table.choices().size());
  report.origin = report.num_saved > 0 ? "as saved in the checkpoint; " : "";
  if (report.num_saved == 0 && store != nullptr && use == SavedKernels::kUse) {
    if (const auto kept = store->read()) {
      table.choose(kernels::kHostProblem, *kept);
      report.origin = "as kept for this machine; ";
      if (!report.text.empty()) report.text = "kernel of fp32 products as kept for this machine" + report.text;
    }
  }
  return report;
}

// The same table on all ranks.
TuningReport choose(const HostProblem& problem, kernels::ProductKernel usual, const std::string& saved,
                    SavedKernels use, const comm::MpiGroup& world, HostKernelStore* store) {
  kernels::KernelTable& table = kernels::kernel_table();
  TuningReport report;
  comm::agreed_on_rank_0(world, [&] { report = choose_known(problem, usual, saved, use, store); });
  if (world.max(world.rank() == 0 && table.choices().empty() ? 1 : 0) == 1) {
    const Timer timer;
    kernels::KernelChoice choice = measure_host_kernel(problem.layer, usual, world);
    if (world.rank() == 0 && store != nullptr) {
      choice = store->keep(choice, use);
    }
    table.choose(kernels::kHostProblem, choice);
    report.num_measured = 1;
    report.seconds = timer.seconds();
    report.text =
        str("kernel of fp32 products measured on all ranks in ", fixed_text(report.seconds, 3), " s", report.text);
  }
  share_kernels(report, world);
  return report;
}

}  // namespace

TuningReport tune_host_kernel(const HostProblem& problem, const std::string& saved, SavedKernels use,
                              const comm::MpiGroup& world, HostKernelStore* store) {
  kernels::kernel_table() = {};
  const UsualKernel usual = usual_kernel(world);
  kernels::set_host_kernel(usual.kernel);
  if (!usual.has_other) {
    return {};
  }
  const HostLayer& layer = problem.layer;
  if (!kernels::is_large_product(layer.rows, layer.outputs, layer.inputs)) {
    kernels::set_host_kernel(
        {usual.kernel.kernel, "not measured: products as small as those of this model's blocks", true});
    return {};
  }
  TuningReport report = choose(problem, usual.kernel.kernel, saved, use, world, store);
  const kernels::KernelChoice& choice = *kernels::kernel_table().find(kernels::kHostProblem);
  kernels::set_host_kernel({*kernels::kernel_named(choice.kernel), report.origin + choice.text});
  return report;
}

}  // namespace vit_hybrid::train
