// The step over the owned ranges, and the gathers.
#include "parallel/zero/zero1_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

Zero1Optimizer::Zero1Optimizer(tensor::ParameterBuffer& buffer, comm::Communicator& data, ZeroStage stage,
                               const PrecisionPolicy& precision, const AdamOptions& options)
    : buffer_(buffer), data_(data), stage_(stage), options_(options) {
  VH_ASSERT(buffer.layout().shards == num_shards(stage, data.size()),
            str(buffer.layout().shards, " shards over ", data.size(), " data ranks"));
  VH_ASSERT(precision.master == buffer.values().scalar_type() && precision.master == buffer.gradients().scalar_type(),
            "parameters, gradients and master weights have one type");
  int64_t state_size = 0;
  for (size_t i = 0; i < buffer.layout().buckets.size(); ++i) {
    buckets_.push_back(make_bucket(static_cast<int>(i), state_size));
    state_size += buckets_.back().own.size();
  }
  const MemoryScope scope(MemoryClass::kOptimizer);
  const auto type = buffer.values().options().dtype(precision.master);
  exp_avg_ = at::zeros({state_size}, type);
  exp_avg_sq_ = at::zeros({state_size}, type);
}

// Gaps after a parameter are taken with it: all is zero there, and stays zero.
Zero1Optimizer::Bucket Zero1Optimizer::make_bucket(int bucket, int64_t state) const {
  const auto& layout = buffer_.layout();
  const Range own = owned_range(layout, bucket, stage_, data_.rank());
  const auto& members = layout.buckets[static_cast<size_t>(bucket)].members;
  Bucket made{own, state, {}};
  for (size_t i = 0; i < members.size(); ++i) {
    const int64_t slot_begin = layout.slots[static_cast<size_t>(members[i])].begin;
    const int64_t slot_end = i + 1 < members.size() ? layout.slots[static_cast<size_t>(members[i + 1])].begin : own.end;
    const Range part{std::max(slot_begin, own.begin), std::min(slot_end, own.end)};
    if (part.begin >= part.end) {
      continue;
    }
    const double weight_decay = weight_decay_of(members[i]);
    if (!made.stretches.empty() && made.stretches.back().weight_decay == weight_decay) {
      made.stretches.back().range.end = part.end;
    } else {
      made.stretches.push_back({part, state + part.begin - own.begin, weight_decay});
    }
  }
  return made;
}

double Zero1Optimizer::weight_decay_of(int parameter) const {
  const auto group = buffer_.specs()[static_cast<size_t>(parameter)].decay;
  return group == tensor::DecayGroup::kMatrix || options_.decay_vectors ? options_.weight_decay : 0.0;
}

void Zero1Optimizer::step(const StepDecision& decision) {
  if (decision.skip) {
    return;
  }
  ++num_steps_;
  const AdamStep step{num_steps_, decision.lr, decision.gradient_scale};
  std::vector<comm::Work> gathers;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    update(buckets_[i], step);
    if (stage_ == ZeroStage::kOptimizerState) {
      gathers.push_back(gather(i));
    }
  }
  for (comm::Work& work : gathers) {
    work.wait();
  }
  buffer_.bump_version();
}

void Zero1Optimizer::update(const Bucket& bucket, const AdamStep& step) {
  for (const Stretch& stretch : bucket.stretches) {
    const int64_t size = stretch.range.size();
    const AdamTensors tensors{buffer_.values().narrow(0, stretch.range.begin, size),
                              buffer_.gradients().narrow(0, stretch.range.begin, size),
                              exp_avg_.narrow(0, stretch.state, size), exp_avg_sq_.narrow(0, stretch.state, size)};
    adam_update(tensors, options_, step, stretch.weight_decay);
  }
}

comm::Work Zero1Optimizer::gather(size_t bucket) {
  const Range range = buffer_.layout().buckets[bucket].range;
  const Range own = buckets_[bucket].own;
  return data_.all_gather(buffer_.values().narrow(0, range.begin, range.size()),
                          buffer_.values().narrow(0, own.begin, own.size()));
}

at::Tensor Zero1Optimizer::gathered(size_t bucket, const at::Tensor& own) const {
  if (stage_ == ZeroStage::kReplicated) {
    return own;
  }
  at::Tensor whole = at::empty({buffer_.layout().buckets[bucket].range.size()}, own.options());
  data_.all_gather(whole, own).wait();
  return whole;
}

std::vector<OwnedState> Zero1Optimizer::owned_state() const {
  const auto& layout = buffer_.layout();
  std::vector<OwnedState> owned;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    for (const int member : layout.buckets[i].members) {
      const Range slot = layout.slots[static_cast<size_t>(member)];
      const Range part{std::max(slot.begin, bucket.own.begin), std::min(slot.end, bucket.own.end)};
      if (part.begin >= part.end) {
        continue;
      }
      const int64_t state = bucket.state + part.begin - bucket.own.begin;
      owned.push_back({member,
                       {part.begin - slot.begin, part.end - slot.begin},
                       buffer_.values().narrow(0, part.begin, part.size()),
                       exp_avg_.narrow(0, state, part.size()),
                       exp_avg_sq_.narrow(0, state, part.size())});
    }
  }
  return owned;
}

void Zero1Optimizer::visit_state(const std::function<void(int, const ParameterState&)>& visit) const {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const auto& layout = buffer_.layout();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    const at::Tensor exp_avg = gathered(i, exp_avg_.narrow(0, bucket.state, bucket.own.size()));
    const at::Tensor exp_avg_sq = gathered(i, exp_avg_sq_.narrow(0, bucket.state, bucket.own.size()));
    for (const int member : layout.buckets[i].members) {
      const Range slot = layout.slots[static_cast<size_t>(member)];
      const int64_t offset = slot.begin - layout.buckets[i].range.begin;
      const auto& shape = buffer_.specs()[static_cast<size_t>(member)].local_shape;
      // The master weights are the parameters, which are whole on every rank between steps.
      visit(member, {buffer_.parameter(member).value, exp_avg.narrow(0, offset, slot.size()).view(shape),
                     exp_avg_sq.narrow(0, offset, slot.size()).view(shape)});
    }
  }
}

}  // namespace vit_hybrid::zero
