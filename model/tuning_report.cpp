// The beginning and the end of choosing kernels, of GPUs and of the host.
#include "model/tuning_report.h"

#include "parallel/tensor/device_kernels.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

using tensor::KernelTable;

std::string begin_kernel_table(const std::string& machine, const std::vector<std::string>& problems,
                               const std::string& saved, SavedKernels use) {
  KernelTable& table = tensor::kernel_table();
  table = KernelTable(machine);
  if (use == SavedKernels::kMeasureAgain) {
    return saved.empty() ? "" : ", the saved ones given up by --retune";
  }
  const KernelTable of_start = KernelTable::parse(saved);
  const bool is_other = table.adopt(of_start, problems) == KernelTable::Adopted::kOtherMachine;
  return is_other ? str(", the saved ones were for ", of_start.machine()) : "";
}

void share_kernels(TuningReport& report, const comm::MpiGroup& world) {
  const std::string choices = world.broadcast(world.rank() == 0 ? tensor::kernel_table().text() : "", 0);
  report.text = world.broadcast(report.text, 0);
  report.origin = world.broadcast(report.origin, 0);
  world.broadcast(&report.num_measured, sizeof(report.num_measured), 0);
  world.broadcast(&report.num_saved, sizeof(report.num_saved), 0);
  world.broadcast(&report.seconds, sizeof(report.seconds), 0);
  tensor::kernel_table() = KernelTable::parse(choices);
}

}  // namespace vit_hybrid::model
