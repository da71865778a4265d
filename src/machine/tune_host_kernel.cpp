// What needs no measuring, the measuring, and the same value on all ranks.
#include "src/machine/tune_host_kernel.h"

#include <ATen/Parallel.h>

#include <array>
#include <optional>

#include "parallel/comm/agreement.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/kernels/gemm/host_kernel_choice.h"
#include "src/kernels/gemm/matmul.h"
#include "src/kernels/gemm/small_product.h"

namespace vit_hybrid::train {

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
