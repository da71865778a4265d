// The beginning and the end of choosing kernels, of GPUs and of the host.
#include "src/machine/tuning_report.h"

#include "src/base/text.h"
#include "src/kernels/gemm/device_kernels.h"

namespace vit_hybrid::train {

using kernels::KernelTable;

std::string begin_kernel_table(const std::string& machine, const std::vector<std::string>& problems,
                               const std::string& saved, SavedKernels use) {
  kernels::KernelTable& table = kernels::kernel_table();
  table = kernels::KernelTable(machine);
  if (use == SavedKernels::kMeasureAgain) {
    return saved.empty() ? "" : ", the saved ones given up by --retune";
  }
  const kernels::KernelTable of_start = kernels::KernelTable::parse(saved);
  const bool is_other = table.adopt(of_start, problems) == kernels::KernelTable::Adopted::kOtherMachine;
  return is_other ? str(", the saved ones were for ", of_start.machine()) : "";
}

void share_kernels(TuningReport& report, const comm::MpiGroup& world) {
  const std::string choices = world.broadcast(world.rank() == 0 ? kernels::kernel_table().text() : "", 0);
  report.text = world.broadcast(report.text, 0);
  report.origin = world.broadcast(report.origin, 0);
  world.broadcast(&report.num_measured, sizeof(report.num_measured), 0);
  world.broadcast(&report.num_saved, sizeof(report.num_saved), 0);
  world.broadcast(&report.seconds, sizeof(report.seconds), 0);
  kernels::kernel_table() = kernels::KernelTable::parse(choices);
}

}  // namespace vit_hybrid::train
