// The gradient buckets: contributions are counted, and reductions started in the order of the buckets.
#include "parallel/zero/gradient_reducer.h"

#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/shareable_tensor.h"
#include "src/base/text.h"
#include "src/base/timer.h"

namespace vit_hybrid::zero {

GradientReducer::GradientReducer(tensor::ParameterBuffer& buffer, const StateGroups& groups,
                                 const PrecisionPolicy& precision)
    : buffer_(buffer), groups_(groups), reduced_(buffer.gradients()), missing_(buffer.specs().size()) {
  VH_ASSERT(buffer.layout().shards == groups.num_shards(),
            str(buffer.layout().shards, " shards over ", groups.num_shards(), " ranks"));
  if (precision.reduce != reduced_.scalar_type()) {
    const MemoryScope scope(MemoryClass::kCommunication);
    reduced_ = shareable_zeros(buffer.layout().size, reduced_.options().dtype(precision.reduce));
  }
  groups_.share(reduced_);
}

void GradientReducer::begin_step(int contributions) {
  VH_ASSERT(!in_step_, "a step began before the last one was finished");
  buffer_.gradients().zero_();
  in_step_ = true;
  next_bucket_ = 0;
  first_open_ = 0;
  reductions_.clear();
  const auto& layout = buffer_.layout();
  incomplete_.assign(layout.buckets.size(), 0);
  for (size_t i = 0; i < missing_.size(); ++i) {
    missing_[i] = layout.slots[i].empty() ? 0 : contributions;
    incomplete_[static_cast<size_t>(layout.bucket_of[i])] += missing_[i] > 0 ? 1 : 0;
  }
  start_complete_buckets();  // all of them, on a replica without samples
}

void GradientReducer::ready(int parameter, int micro_batch) {
  comm::note_work();
  const auto index = static_cast<size_t>(parameter);
  if (buffer_.layout().slots.at(index).empty()) {
    return;  // a slice without elements, e.g. of a tensor rank without heads
  }
  VH_ASSERT(in_step_ && missing_.at(index) > 0,
            str(buffer_.specs().at(index).name, " got a contribution of micro-batch ", micro_batch,
                " that the schedule did not foretell"));
  if (--missing_[index] == 0) {
    --incomplete_[static_cast<size_t>(buffer_.layout().bucket_of[index])];
    start_complete_buckets();
  }
  poll();
}

void GradientReducer::finish() {
  VH_ASSERT(in_step_, "no step was begun");
  for (size_t i = 0; i < missing_.size(); ++i) {
    VH_ASSERT(missing_[i] == 0, str(buffer_.specs()[i].name, " lacks the contributions of ", missing_[i],
                                    " micro-batches: a part of the model is not trained"));
  }
  seconds_waited_ = 0;
  const ScopedTimer timer(seconds_waited_);
  for (size_t i = 0; i < reductions_.size(); ++i) {
    reductions_[i].wait();
    if (reduces_copies()) {
      const auto bucket = static_cast<int>(i);
      reduced_part(buffer_.gradients(), bucket).copy_(reduced_part(reduced_, bucket));
    }
  }
  in_step_ = false;
}

void GradientReducer::start_complete_buckets() {
  while (next_bucket_ < incomplete_.size() && incomplete_[next_bucket_] == 0) {
    reductions_.push_back(reduce(static_cast<int>(next_bucket_)));
    ++next_bucket_;
  }
}

GradientReducer::Reduction GradientReducer::reduce(int bucket) {
  const Range range = buffer_.layout().buckets[static_cast<size_t>(bucket)].range;
  const at::Tensor whole = reduced_.narrow(0, range.begin, range.size());
  if (reduces_copies()) {
    whole.copy_(buffer_.gradients().narrow(0, range.begin, range.size()));
  }
  const at::Tensor part = reduced_part(reduced_, bucket);
  Reduction reduction;
  if (groups_.shard != nullptr) {
    reduction.scattered = groups_.shard->reduce_scatter(part, whole, comm::ReduceOp::kSum);
  }
  if (groups_.replica != nullptr) {
    reduction.summed = groups_.replica->all_reduce_after(reduction.scattered, part, comm::ReduceOp::kSum);
  }
  return reduction;
}

// What this rank gets of the sum of a bucket.
at::Tensor GradientReducer::reduced_part(const at::Tensor& flat, int bucket) const {
  const Range own = buffer_.layout().shard_of(bucket, groups_.place().shard);
  return flat.narrow(0, own.begin, own.size());
}

void GradientReducer::poll() {
  while (first_open_ < reductions_.size() && reductions_[first_open_].test()) {
    ++first_open_;
  }
}

}  // namespace vit_hybrid::zero
