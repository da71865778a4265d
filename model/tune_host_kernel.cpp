// What needs no measuring, the measuring, and the same value on all ranks.
#include "model/tune_host_kernel.h"

#include <ATen/Parallel.h>

#include <array>
#include <optional>

#include "parallel/comm/agreement.h"
#include "parallel/tensor/host_kernel_choice.h"
#include "parallel/tensor/matmul.h"
#include "parallel/tensor/small_product.h"
#include "src/base/text.h"
#include "src/base/timer.h"

namespace vit_hybrid::model {

namespace {

using tensor::KernelTable;
using tensor::ProductKernel;

// The same kernel on all ranks, and whether they have another one too.
struct UsualKernel {
  tensor::HostKernel kernel;
  bool has_other = false;
};

UsualKernel usual_kernel(const comm::MpiGroup& world) {
  const tensor::HostKernel own = tensor::usual_host_kernel();
  const bool has_other = tensor::has_block_kernel();
  if (world.min(has_other ? 1 : 0) == 0) {
    return {has_other ? tensor::HostKernel{ProductKernel::kLibrary, "not all ranks have oneDNN's block kernel"} : own,
            false};
  }
  auto kernel = own.kernel;
  world.broadcast(&kernel, sizeof(kernel), 0);
  return {kernel == own.kernel ? own : tensor::HostKernel{kernel, "as on rank 0"}, true};
}

bool is_host_kernel(const std::string& name) {
  const auto kernel = tensor::kernel_named(name);
  return kernel == ProductKernel::kBlocked || kernel == ProductKernel::kLibrary;
}

// The choice of --deterministic, put into kernel_table(); one line if an earlier start had another kernel.
std::string choose_usual(ProductKernel usual) {
  KernelTable& table = tensor::kernel_table();
  const auto* const saved = table.find(tensor::kHostProblem);
  const std::string name = tensor::kernel_name(usual);
  const std::string text =
      saved == nullptr || saved->kernel == name
          ? ""
          : str("--deterministic: fp32 products by the usual kernel, '", name, "', instead of the saved one, '",
                saved->kernel, "': from here on the bits differ");
  table.choose(tensor::kHostProblem,
               tensor::unmeasured_host_kernel(usual, "--deterministic", tensor::processor_maker_text()));
  return text;
}

// On rank 0: a choice that needs no measuring, put into kernel_table() if there is one; what is said of the saved one.
std::string choose_unmeasured(const HostProblem& problem, ProductKernel usual, const std::string& saved,
                              SavedKernels use) {
  const std::string of_saved = begin_kernel_table(problem.machine, {tensor::kHostProblem}, saved, use);
  if (problem.order == tensor::SumOrder::kFixed) {
    return choose_usual(usual);
  }
  KernelTable& table = tensor::kernel_table();
  if (const auto* const choice = table.find(tensor::kHostProblem);
      choice != nullptr && !is_host_kernel(choice->kernel)) {
    const std::string text = str(", the saved one, '", choice->kernel, "', is not known to this version");
    table.forget(tensor::kHostProblem);
    return text;
  }
  return of_saved;
}

tensor::KernelChoice measure_host_kernel(const tensor::HostLayer& layer, ProductKernel usual,
                                         const comm::MpiGroup& world) {
  constexpr std::array kKernels = {ProductKernel::kBlocked, ProductKernel::kLibrary};
  std::optional<tensor::HostKernelTimer> timer;
  comm::agreed(world, [&] { timer.emplace(tensor::measured_part(layer, at::get_num_threads())); });
  const auto times = tensor::microseconds_of_all_ranks(
      kKernels.size(), [&](size_t i) { return timer->microseconds(kKernels[i]); }, world);
  return tensor::choose_host_kernel(usual, {times[0], times[1]}, tensor::processor_maker_text());
}

// On rank 0: the choice of the checkpoint, of --deterministic or of the store, put into kernel_table() if there is one.
TuningReport choose_known(const HostProblem& problem, ProductKernel usual, const std::string& saved, SavedKernels use,
                          HostKernelStore* store) {
  KernelTable& table = tensor::kernel_table();
  TuningReport report;
  report.text = choose_unmeasured(problem, usual, saved, use);
  if (problem.order == tensor::SumOrder::kFixed) {
    return report;
  }
  report.num_saved = static_cast<int>(table.choices().size());
  report.origin = report.num_saved > 0 ? "as saved in the checkpoint; " : "";
  if (report.num_saved == 0 && store != nullptr && use == SavedKernels::kUse) {
    if (const auto kept = store->read()) {
      table.choose(tensor::kHostProblem, *kept);
      report.origin = "as kept for this machine; ";
      if (!report.text.empty()) report.text = "kernel of fp32 products as kept for this machine" + report.text;
    }
  }
  return report;
}

// The same table on all ranks.
TuningReport choose(const HostProblem& problem, ProductKernel usual, const std::string& saved, SavedKernels use,
                    const comm::MpiGroup& world, HostKernelStore* store) {
  KernelTable& table = tensor::kernel_table();
  TuningReport report;
  comm::agreed_on_rank_0(world, [&] { report = choose_known(problem, usual, saved, use, store); });
  if (world.max(world.rank() == 0 && table.choices().empty() ? 1 : 0) == 1) {
    const Timer timer;
    tensor::KernelChoice choice = measure_host_kernel(problem.layer, usual, world);
    if (world.rank() == 0 && store != nullptr) {
      choice = store->keep(choice, use);
    }
    table.choose(tensor::kHostProblem, choice);
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
  tensor::kernel_table() = {};
  const UsualKernel usual = usual_kernel(world);
  tensor::set_host_kernel(usual.kernel);
  if (!usual.has_other) {
    return {};
  }
  const tensor::HostLayer& layer = problem.layer;
  if (!tensor::is_large_product(layer.rows, layer.outputs, layer.inputs)) {
    tensor::set_host_kernel(
        {usual.kernel.kernel, "not measured: products as small as those of this model's blocks", true});
    return {};
  }
  TuningReport report = choose(problem, usual.kernel.kernel, saved, use, world, store);
  const tensor::KernelChoice& choice = *tensor::kernel_table().find(tensor::kHostProblem);
  tensor::set_host_kernel({*tensor::kernel_named(choice.kernel), report.origin + choice.text});
  return report;
}

}  // namespace vit_hybrid::model
