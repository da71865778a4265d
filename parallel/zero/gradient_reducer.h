// GradientReducer: sums the gradients over the data axis, bucket by bucket, while backward goes on.
#pragma once

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"
#include "parallel/zero/sharding.h"
#include "parallel/zero/step_control.h"

namespace vit_hybrid::zero {

/// A bucket is started when all its parameters have all their contributions and the buckets before it were started:
/// one order on all ranks, whatever the order of their micro-batches. Where the state is split over a part of the data
/// axis, the sums of the part, scattered over it, are then added up over the parts, which nobody waits for in between.
/// It only sums: the loss was divided by the global batch size.
class GradientReducer final : public tensor::GradientSink {
 public:
  /// The layout of `buffer` must be cut into groups.num_shards() shards. Buffer and communicators must outlive the
  /// reducer. Where the precision reduces in another type than that of the gradients, a bucket travels as a cast copy.
  /// Collective over the data axis.
  GradientReducer(tensor::ParameterBuffer& buffer, const StateGroups& groups, const PrecisionPolicy& precision);

  /// Zeroes the gradients and expects `contributions` (micro-batches of this replica, or their parts; 0 for a replica
  /// without samples) to every parameter. Collective over the data axis, as is all up to finish().
  void begin_step(int contributions);

  /// Counts one contribution; starts what is complete, and lets the reductions in flight move on.
  void ready(int parameter, int micro_batch) override;

  /// Returns when the sums are there: in the owned range of each bucket (the rest of it is unspecified under ZeRO-1).
  /// A parameter with fewer contributions than foretold is a broken invariant.
  void finish();

  /// Seconds that finish() of this step waited.
  double seconds_waited() const { return seconds_waited_; }

 private:
  // One of the two is missing where the state is split over all of the axis, or not at all.
  struct Reduction {
    comm::Work scattered;
    comm::Work summed;
    bool test() { return scattered.test() && summed.test(); }
    void wait() {
      scattered.wait();
      summed.wait();
    }
  };

  void start_complete_buckets();
  Reduction reduce(int bucket);
  bool reduces_copies() const { return !reduced_.is_same(buffer_.gradients()); }
  at::Tensor reduced_part(const at::Tensor& flat, int bucket) const;
  void poll();

  tensor::ParameterBuffer& buffer_;
  StateGroups groups_;
  at::Tensor reduced_;                 // flat: the gradients, or what is reduced in their place
  std::vector<int> missing_;           // by parameter: contributions still to come
  std::vector<int> incomplete_;        // by bucket: members with missing contributions
  std::vector<Reduction> reductions_;  // by bucket
  size_t next_bucket_ = 0;             // the first one not started
  size_t first_open_ = 0;              // the first reduction that may not be complete
  bool in_step_ = false;
  double seconds_waited_ = 0;
};

}  // namespace vit_hybrid::zero
