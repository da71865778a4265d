// Measuring on rank 0, and the broadcast of what came out.
#include "src/machine/tune_kernels.h"

#include <cmath>

#include "parallel/comm/agreement.h"
#include "parallel/comm/operation.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/kernels/gemm/device_products.h"

namespace vit_hybrid::train {

namespace {

using kernels::KernelTable;

// On one rank: the table of all choices, left in kernel_table(), and what was done.
TuningReport choose(const DeviceProblems& problems, const std::string& saved, SavedKernels use, c10::Device device) {
  const Timer timer;
  kernels::KernelTable& table = kernels::kernel_table();
  const std::string machine =
      kernels::machine_text(kernels::device_traits(device), kernels::device_kernel_options().order);
  const std::string of_saved = begin_kernel_table(machine, problems.names_with_parts(), saved, use);
  TuningReport report;
  report.num_saved = static_cast<int>(table.choices().size());
  for (const auto& product : problems.products) {
    comm::note_work();
    if (table.find(product.name()) == nullptr) {
      kernels::measure_product(product, device);
    }
  }
  for (const auto& attention : problems.attentions) {
    comm::note_work();
    if (table.find(attention.name()) == nullptr) {
      kernels::measure_attention(attention, device);
    }
  }
  kernels::release_unused_device_memory();
  report.num_measured = static_cast<int>(table.choices().size()) - report.num_saved;
  report.seconds = timer.seconds();
  report.text = str("kernels of ", report.num_measured, " shapes measured on rank 0 in ",
                    std::round(10.0 * report.seconds) / 10.0, " s",
                    report.num_saved > 0 ? str(", ", report.num_saved, " as saved") : "", of_saved);
  return report;
}

}  // namespace

TuningReport tune_kernels(const DeviceProblems& problems, const std::string& saved, SavedKernels use,
                          c10::Device device, const comm::MpiGroup& world) {
  TuningReport report;
  comm::agreed_on_rank_0(world, [&] { report = choose(problems.distinct(), saved, use, device); });
  share_kernels(report, world);
  kernels::forget_product_plans();
  return report;
}

std::string fixed_order_cost_text(const DeviceProblems& problems) {
  const double cost = kernels::kernel_table().cost(problems.names());
  if (kernels::device_kernel_options().order == kernels::SumOrder::kAny || kernels::kernel_table().choices().empty()) {
    return {};
  }
  return str("--deterministic: products and attention take ", std::round(1000.0 * cost) / 10.0,
             " % longer than with the fastest kernels");
}

}  // namespace vit_hybrid::train
