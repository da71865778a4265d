// RankReport: one row of numbers a rank, gathered.
#include "src/train/rank_report.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <utility>
#include <vector>

#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

namespace {

// The numbers of a row in the order in which they are written and read.
std::vector<double> to_row(const StepSeconds& seconds, const MemoryReport& memory) {
  std::vector<double> row = {seconds.step,          seconds.forward,   seconds.backward,
                             seconds.communication, seconds.optimizer, seconds.data_wait};
  row.insert(row.end(), memory.peak.begin(), memory.peak.end());
  row.insert(row.end(), memory.at_peak.begin(), memory.at_peak.end());
  row.push_back(static_cast<double>(memory.total_peak));
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
  const StepSeconds seconds{row[0], row[1], row[2], row[3], row[4], row[5]};
  const double* memory = row + 6;
  return {{"rank", rank},
          {"seconds", to_json(seconds)},
          {"memory",
           {{"peak", bytes_by_class(memory)},
            {"at_peak", bytes_by_class(memory + kNumMemoryClasses)},
            {"total_peak", static_cast<int64_t>(memory[2 * kNumMemoryClasses])}}}};
}

}  // namespace

Json gather_rank_reports(const StepSeconds& seconds, comm::Communicator& host_world) {
  const MemoryReport memory = MemoryTracker::report();
  const MemoryScope scope(MemoryClass::kCommunication);
  const std::vector<double> row = to_row(seconds, memory);
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
