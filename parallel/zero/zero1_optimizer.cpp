// The sharded step over the owned ranges, bucket by bucket, and the all-gathers of the parameters.
#include "parallel/zero/zero1_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

Zero1Optimizer::Zero1Optimizer(tensor::ParameterBuffer& buffer, const StateGroups& groups, comm::Communicator& tensor,
                               const PrecisionPolicy& precision, const OptimizerOptions& options)
    : buffer_(buffer),
      values_(buffer.values()),
      groups_(groups),
      master_type_(precision.master),
      options_(options),
      rule_(make_update_rule(options, buffer.values().device().type())),
      norms_(buffer, groups, tensor) {
  VH_ASSERT(buffer.layout().shards == groups.num_shards(),
            str(buffer.layout().shards, " shards over ", groups.num_shards(), " ranks"));
  VH_ASSERT(
      precision.compute == buffer.values().scalar_type() && precision.gradient == buffer.gradients().scalar_type(),
      "the buffer has other types than the precision");
  int64_t state_size = 0;
  for (size_t i = 0; i < buffer.layout().buckets.size(); ++i) {
    buckets_.push_back(make_bucket(static_cast<int>(i), state_size));
    state_size += buckets_.back().own.size();
  }
  const MemoryScope scope(MemoryClass::kOptimizer);
  const auto options_of_state = buffer.values().options().dtype(precision.master);
  for (size_t i = 0; i < rule_->state_names().size(); ++i) {
    state_.push_back(at::zeros({state_size}, options_of_state));
  }
  if (precision.has_own_master()) {
    master_ = at::zeros({state_size}, options_of_state);
  }
  if (rule_->updates_at_once()) {
    segments_ = segment_tensor(segments(), buffer.values().device());
  }
  if (groups.shard != nullptr) {
    groups.shard->share(values_);
  }
}

// Gaps after a parameter are taken with it: all is zero there, and stays zero.
Zero1Optimizer::Bucket Zero1Optimizer::make_bucket(int bucket, int64_t state) const {
  const auto& layout = buffer_.layout();
  const Range own = layout.shard_of(bucket, groups_.place().shard);
  const auto& members = layout.buckets[static_cast<size_t>(bucket)].members;
  Bucket made{own, state, {}};
  for (size_t i = 0; i < members.size(); ++i) {
    const int64_t slot_begin = layout.slots[static_cast<size_t>(members[i])].begin;
    const int64_t slot_end = i + 1 < members.size() ? layout.slots[static_cast<size_t>(members[i + 1])].begin : own.end;
    const Range part{std::max(slot_begin, own.begin), std::min(slot_end, own.end)};
    if (part.begin >= part.end) {
      continue;
    }
    const double weight_decay = decays(members[i]) ? options_.weight_decay : 0.0;
    const bool may_join = !made.stretches.empty() && !rule_->is_layerwise();
    if (may_join && made.stretches.back().weight_decay == weight_decay) {
      made.stretches.back().range.end = part.end;
    } else {
      made.stretches.push_back({part, state + part.begin - own.begin, members[i], weight_decay});
    }
  }
  return made;
}

std::vector<Segment> Zero1Optimizer::segments() const {
  std::vector<Segment> segments;
  for (const Bucket& bucket : buckets_) {
    for (const Stretch& stretch : bucket.stretches) {
      segments.push_back({stretch.state, stretch.range.begin - stretch.state, stretch.weight_decay});
    }
  }
  return segments;
}

// Whether it is treated as matrices are: weight decay, and the trust ratio of a layer-wise rule.
bool Zero1Optimizer::decays(int parameter) const {
  const auto group = buffer_.specs()[static_cast<size_t>(parameter)].decay;
  return group == tensor::DecayGroup::kMatrix || options_.decay_vectors;
}

void Zero1Optimizer::update(const StepControl& control) {
  buffer_.await_all();  // a replica without samples has not used them
  if (rule_->updates_at_once()) {
    rule_->apply_to_owned({master_, state_, values_, buffer_.gradients(), segments_}, control.values());
    for (size_t i = buckets_.size(); i-- > 0;) {
      start_gather(i);
    }
    return;
  }
  const StepScalars step = control.read();
  if (step.is_skipped()) {
    return;
  }
  if (rule_->is_layerwise()) {
    measure(step);
  }
  for (size_t i = buckets_.size(); i-- > 0;) {
    update_bucket(buckets_[i], step);
    start_gather(i);
  }
}

// The last bucket has what forward uses first.
void Zero1Optimizer::start_gather(size_t bucket) {
  if (groups_.shard == nullptr) {
    return;
  }
  const Range range = buffer_.layout().buckets[bucket].range;
  const Range own = buckets_[bucket].own;
  buffer_.expect(bucket, groups_.shard->all_gather(values_.narrow(0, range.begin, range.size()),
                                                   values_.narrow(0, own.begin, own.size())));
}

void Zero1Optimizer::end_step(bool skipped) {
  if (!skipped) {
    ++num_steps_;
    buffer_.bump_version();
  }
}

// The master weights of a range of the flat buffer, of which the state begins at `state`.
at::Tensor Zero1Optimizer::master_of(const Range& range, int64_t state) const {
  return master_.defined() ? master_.narrow(0, state, range.size()) : values_.narrow(0, range.begin, range.size());
}

// The parts of parameters that this rank owns, in the order of the flat buffer; `state`: where that of a part begins.
void Zero1Optimizer::for_each_owned(
    const std::function<void(int parameter, const Range& part, int64_t state)>& visit) const {
  const auto& layout = buffer_.layout();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    for (const int member : layout.buckets[i].members) {
      const Range slot = layout.slots[static_cast<size_t>(member)];
      const Range part{std::max(slot.begin, bucket.own.begin), std::min(slot.end, bucket.own.end)};
      if (part.begin < part.end) {
        visit(member, part, bucket.state + part.begin - bucket.own.begin);
      }
    }
  }
}

void Zero1Optimizer::write(int parameter, const std::function<void(const at::Tensor& values)>& fill) {
  if (!master_.defined()) {
    buffer_.write(parameter, fill);
    return;
  }
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor& value = buffer_.parameter(parameter).value;
  const at::Tensor wide = value.to(master_type_).contiguous();
  const int64_t begin = buffer_.layout().slots[static_cast<size_t>(parameter)].begin;
  // What this rank owns is more exact than the parameter's cast.
  const auto for_own_part = [&](const auto& visit) {
    for_each_owned([&](int owned, const Range& part, int64_t state) {
      if (owned == parameter) {
        visit(wide.view(-1).narrow(0, part.begin - begin, part.size()), master_of(part, state));
      }
    });
  };
  for_own_part([](const at::Tensor& values, const at::Tensor& master) { values.copy_(master); });
  fill(wide);
  for_own_part([](const at::Tensor& values, const at::Tensor& master) { master.copy_(values); });
  buffer_.write(parameter, [&](const at::Tensor& values) { values.copy_(wide); });
}

UpdateTensors Zero1Optimizer::tensors_of(const Stretch& stretch) const {
  const int64_t size = stretch.range.size();
  const at::Tensor parameters = values_.narrow(0, stretch.range.begin, size);
  UpdateTensors tensors{master_of(stretch.range, stretch.state),
                        buffer_.gradients().narrow(0, stretch.range.begin, size),
                        {},
                        master_.defined() ? parameters : at::Tensor()};
  for (const at::Tensor& state : state_) {
    tensors.state.push_back(state.narrow(0, stretch.state, size));
  }
  return tensors;
}

void Zero1Optimizer::measure(const StepScalars& step) {
  norms_.clear();
  for (const Bucket& bucket : buckets_) {
    for (const Stretch& stretch : bucket.stretches) {
      rule_->prepare(tensors_of(stretch), step, stretch.weight_decay, norms_.sums_of(stretch.parameter));
    }
  }
  norms_.reduce();
}

double Zero1Optimizer::trust_of(const Stretch& stretch) const {
  if (!rule_->is_layerwise() || !decays(stretch.parameter)) {
    return 1.0;
  }
  return rule_->trust_ratio(norms_.weight_norm(stretch.parameter), norms_.update_norm(stretch.parameter),
                            stretch.weight_decay);
}

void Zero1Optimizer::update_bucket(const Bucket& bucket, const StepScalars& step) {
  for (const Stretch& stretch : bucket.stretches) {
    rule_->apply(tensors_of(stretch), step, stretch.weight_decay, trust_of(stretch));
  }
}

std::vector<OwnedState> Zero1Optimizer::owned_state() const {
  buffer_.await_all();
  std::vector<OwnedState> owned;
  for_each_owned([&](int parameter, const Range& part, int64_t state) {
    const int64_t begin = buffer_.layout().slots[static_cast<size_t>(parameter)].begin;
    owned.push_back({parameter, {part.begin - begin, part.end - begin}, master_of(part, state), {}});
    for (const at::Tensor& flat : state_) {
      owned.back().state.push_back(flat.narrow(0, state, part.size()));
    }
  });
  return owned;
}

}  // namespace vit_hybrid::zero
