// gather_rank_reports(): one row of numbers a rank, gathered.
#include "src/report/rank_report.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <sys/resource.h>

#include <utility>
#include <vector>

#include "src/base/device/device_memory.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

namespace {

constexpr int kNumSeconds = 7;

// Of the whole process, tensors or not.
int64_t peak_resident_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;
}

// The numbers of a row in the order in which they are written and read.
std::vector<double> to_row(const StepSeconds& seconds, const MemoryReport& memory, int64_t device_peak) {
  std::vector<double> row = {seconds.step,          seconds.forward,   seconds.backward, seconds.reduce,
                             seconds.communication, seconds.optimizer, seconds.data_wait};
  row.insert(row.end(), memory.peak.begin(), memory.peak.end());
  row.insert(row.end(), memory.at_peak.begin(), memory.at_peak.end());
  row.push_back(static_cast<double>(memory.total_peak));
  row.push_back(static_cast<double>(peak_resident_bytes()));
  row.push_back(static_cast<double>(device_peak));
  return row;
}

Json bytes_by_class(const double* bytes) {
  Json json;
  for (int i = 0; i < kNumMemoryClasses; ++i) {
    json[std::string(memory_class_name(static_cast<MemoryClass>(i)))] = static_cast<int64_t>(bytes[i]);
  }
  return json;
}

Json from_row(int rank, const double* row) {
  const StepSeconds seconds{row[0], row[1], row[2], row[3], row[4], row[5], row[6]};
  const double* memory = row + kNumSeconds;
  const double* totals = memory + 2 * kNumMemoryClasses;
  return {{"rank", rank},
          {"seconds", to_json(seconds)},
          {"memory",
           {{"peak", bytes_by_class(memory)},
            {"at_peak", bytes_by_class(memory + kNumMemoryClasses)},
            {"total_peak", static_cast<int64_t>(totals[0])},
            {"process_peak", static_cast<int64_t>(totals[1])},
            {"device_peak", static_cast<int64_t>(totals[2])}}}};
}

}  // namespace

Json gather_rank_reports(const StepSeconds& seconds, c10::Device device, comm::Communicator& host_world) {
  const MemoryReport memory = MemoryTracker::report();
  const MemoryScope scope(MemoryClass::kCommunication);
  const std::vector<double> row = to_row(seconds, memory, device_peak_bytes(device));
  const auto columns = static_cast<int64_t>(row.size());
  const at::Tensor mine = at::tensor(row, at::kDouble);
  const at::Tensor all = at::empty({host_world.size() * columns}, at::kDouble);
  host_world.all_gather(all, mine).wait();
  Json ranks = Json::array();
  for (int rank = 0; rank < host_world.size(); ++rank) {
    ranks.push_back(from_row(rank, all.const_data_ptr<double>() + rank * columns));
  }
  return ranks;
}

}  // namespace vit_hybrid::train
