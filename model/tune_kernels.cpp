// Measuring on rank 0, or for the host on all, and the broadcast of what came out.
#include "model/tune_kernels.h"

#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <optional>

#include "parallel/comm/agreement.h"
#include "parallel/tensor/device_products.h"
#include "parallel/tensor/host_kernel_choice.h"
#include "parallel/tensor/matmul.h"
#include "parallel/tensor/product_kernel.h"
#include "parallel/tensor/small_product.h"
#include "src/base/text.h"
#include "src/base/timer.h"

namespace vit_hybrid::model {

namespace {

using tensor::KernelTable;
using tensor::ProductKernel;

// An empty kernel_table() of this machine, with those choices of an earlier start for `problems` that count; what came
// of them, for the report.
std::string begin_table(const std::string& machine, const std::vector<std::string>& problems, const std::string& saved,
                        SavedKernels use) {
  KernelTable& table = tensor::kernel_table();
  table = KernelTable(machine);
  if (use == SavedKernels::kMeasureAgain) {
    return saved.empty() ? "" : ", the saved ones given up by --retune";
  }
  const KernelTable of_start = KernelTable::parse(saved);
  switch (table.adopt(of_start, problems)) {
    case KernelTable::Adopted::kAll:
      return str(", ", table.choices().size(), " as saved");
    case KernelTable::Adopted::kOtherMachine:
      return str(", the saved ones were for ", of_start.machine());
    case KernelTable::Adopted::kNothingSaved:
      break;
  }
  return "";
}

// kernel_table() and what was done, as they are on rank 0.
void share(TuningReport& report, const comm::MpiGroup& world) {
  const std::string choices = world.broadcast(world.rank() == 0 ? tensor::kernel_table().text() : "", 0);
  report.text = world.broadcast(report.text, 0);
  world.broadcast(&report.num_measured, sizeof(report.num_measured), 0);
  world.broadcast(&report.num_saved, sizeof(report.num_saved), 0);
  world.broadcast(&report.seconds, sizeof(report.seconds), 0);
  tensor::kernel_table() = KernelTable::parse(choices);
}

double rounded(double value, double parts) {
  return std::round(parts * value) / parts;
}

// On one rank: the table of all choices, left in kernel_table(), and what was done.
TuningReport choose(const DeviceProblems& problems, const std::string& saved, SavedKernels use, c10::Device device) {
  const Timer timer;
  KernelTable& table = tensor::kernel_table();
  const std::string machine =
      tensor::machine_text(tensor::device_traits(device), tensor::device_kernel_options().order);
  const std::string of_saved = begin_table(machine, problems.names_with_parts(), saved, use);
  TuningReport report;
  report.num_saved = static_cast<int>(table.choices().size());
  for (const auto& product : problems.products) {
    if (table.find(product.name()) == nullptr) {
      tensor::measure_product(product, device);
    }
  }
  for (const auto& attention : problems.attentions) {
    if (table.find(attention.name()) == nullptr) {
      measure_attention(attention, device);
    }
  }
  tensor::release_unused_device_memory();
  report.num_measured = static_cast<int>(table.choices().size()) - report.num_saved;
  report.seconds = timer.seconds();
  report.text = str("kernels of ", report.num_measured, " shapes measured on rank 0 in ", rounded(report.seconds, 10.0),
                    " s", of_saved);
  return report;
}

// The same kernel on all ranks, and whether they have another one too.
struct UsualKernel {
  tensor::HostKernel kernel;
  bool has_other = false;
};

UsualKernel usual_kernel(const comm::MpiGroup& world) {
  const tensor::HostKernel own = tensor::usual_host_kernel();
  if (world.min(tensor::has_block_kernel() ? 1 : 0) == 0) {
    return {own.kernel == ProductKernel::kLibrary
                ? own
                : tensor::HostKernel{ProductKernel::kLibrary, "not all ranks have oneDNN's block kernel"},
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

// On rank 0: a choice that needs no measuring, put into kernel_table() if there is one; what is said of the saved one.
std::string choose_unmeasured(const HostProblem& problem, ProductKernel usual, const std::string& saved,
                              SavedKernels use) {
  KernelTable& table = tensor::kernel_table();
  if (problem.order == tensor::SumOrder::kFixed) {
    table = KernelTable(problem.machine);
    table.choose(tensor::kHostProblem,
                 tensor::unmeasured_host_kernel(usual, "--deterministic", tensor::processor_maker_text()));
    return "";
  }
  const std::string of_saved = begin_table(problem.machine, {tensor::kHostProblem}, saved, use);
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

}  // namespace

TuningReport tune_kernels(const DeviceProblems& problems, const std::string& saved, SavedKernels use,
                          c10::Device device, const comm::MpiGroup& world) {
  TuningReport report;
  comm::agreed_on_rank_0(world, [&] { report = choose(problems.distinct(), saved, use, device); });
  share(report, world);
  tensor::forget_product_plans();
  return report;
}

TuningReport tune_host_kernel(const HostProblem& problem, const std::string& saved, SavedKernels use,
                              const comm::MpiGroup& world) {
  KernelTable& table = tensor::kernel_table();
  table = {};
  const UsualKernel usual = usual_kernel(world);
  tensor::set_host_kernel(usual.kernel);
  TuningReport report;
  if (!usual.has_other) {
    return report;
  }
  const tensor::HostLayer& layer = problem.layer;
  if (!tensor::is_large_product(layer.rows, layer.outputs, layer.inputs)) {
    tensor::set_host_kernel(
        {usual.kernel.kernel, str(tensor::processor_maker_text(),
                                  "; not measured: products as small as this model's go to ", tensor::library_name())});
    return report;
  }
  std::string of_saved;
  comm::agreed_on_rank_0(world, [&] {
    of_saved = choose_unmeasured(problem, usual.kernel.kernel, saved, use);
    report.num_saved = problem.order == tensor::SumOrder::kAny ? static_cast<int>(table.choices().size()) : 0;
  });
  const bool is_open = world.max(world.rank() == 0 && table.choices().empty() ? 1 : 0) == 1;
  if (is_open) {
    const Timer timer;
    table.choose(tensor::kHostProblem, measure_host_kernel(layer, usual.kernel.kernel, world));
    report.num_measured = 1;
    report.seconds = timer.seconds();
    report.text =
        str("kernel of fp32 products measured on all ranks in ", rounded(report.seconds, 1000.0), " s", of_saved);
  }
  share(report, world);
  const tensor::KernelChoice& choice = *table.find(tensor::kHostProblem);
  tensor::set_host_kernel({*tensor::kernel_named(choice.kernel),
                           report.num_saved > 0 ? "as saved in the checkpoint; " + choice.text : choice.text});
  return report;
}

std::string fixed_order_cost_text(const DeviceProblems& problems) {
  const double cost = tensor::kernel_table().cost(problems.names());
  if (tensor::device_kernel_options().order == tensor::SumOrder::kAny || tensor::kernel_table().choices().empty()) {
    return {};
  }
  return str("--deterministic: products and attention take ", std::round(1000.0 * cost) / 10.0,
             " % longer than with the fastest kernels");
}

}  // namespace vit_hybrid::model
