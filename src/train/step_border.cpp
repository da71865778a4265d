// agree_at_border(): a sum and a maximum.
#include "src/train/step_border.h"

#include <ATen/ops/zeros.h>

#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

namespace {

enum Sum : int64_t { kLoss, kDataWait, kTimeIsUp, kHasWritten, kNumSums };
enum Most : int64_t { kMostDataWait, kSignal, kNumMost };

}  // namespace

BorderAgreement agree_at_border(const BorderReport& own, comm::Communicator& host_world) {
  const MemoryScope scope(MemoryClass::kCommunication);
  at::Tensor sums = at::zeros({kNumSums}, at::kDouble);
  auto* const sum = sums.mutable_data_ptr<double>();
  sum[kLoss] = own.loss;
  sum[kDataWait] = own.data_wait;
  sum[kTimeIsUp] = own.time_is_up ? 1.0 : 0.0;
  sum[kHasWritten] = own.has_written ? 1.0 : 0.0;
  host_world.all_reduce(sums, comm::ReduceOp::kSum).wait();
  at::Tensor maxima = at::zeros({kNumMost}, at::kDouble);
  auto* const most = maxima.mutable_data_ptr<double>();
  most[kMostDataWait] = own.data_wait;
  most[kSignal] = own.signal;
  host_world.all_reduce(maxima, comm::ReduceOp::kMax).wait();

  BorderAgreement all;
  all.loss = sum[kLoss];
  all.mean_data_wait = sum[kDataWait] / static_cast<double>(host_world.size());
  all.time_is_up = sum[kTimeIsUp] > 0.0;
  all.all_have_written = sum[kHasWritten] == static_cast<double>(host_world.size());
  all.most_data_wait = most[kMostDataWait];
  all.signal = static_cast<int>(most[kSignal]);
  return all;
}

}  // namespace vit_hybrid::train
