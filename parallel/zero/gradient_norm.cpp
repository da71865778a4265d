// GradientNorm: local sums of squares, and the one reduction that makes them those of the model.
#include "parallel/zero/gradient_norm.h"

#include <algorithm>
#include <vector>

#include "src/base/partition.h"

namespace vit_hybrid::zero {

namespace {

// The slots that this rank counts, cut to what it owns; neighbours are joined over the gaps, which are zero, also over
// the border of two buckets of which it owns the end and the begin.
std::vector<Range> ranges_of_rank(const tensor::ParameterBuffer& buffer, StatePlace place, int tensor_rank) {
  std::vector<Range> counted;
  if (place.replica != 0) {
    return counted;
  }
  const auto& layout = buffer.layout();
  bool joins = false;
  int64_t owned_end = 0;
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    const Range own = layout.shard_of(static_cast<int>(bucket), place.shard);
    joins = joins && own.begin == owned_end;
    owned_end = own.end;
    for (const int member : layout.buckets[bucket].members) {
      const auto index = static_cast<size_t>(member);
      const bool counts = tensor_rank == 0 || !buffer.specs()[index].replicated_over_tensor;
      const Range slot = layout.slots[index];
      const Range part{std::max(slot.begin, own.begin), std::min(slot.end, own.end)};
      if (part.begin >= part.end) {
        continue;
      }
      if (counts && joins) {
        counted.back().end = part.end;
      } else if (counts) {
        counted.push_back(part);
      }
      joins = counts;
    }
  }
  return counted;
}

}  // namespace

GradientNorm::GradientNorm(const tensor::ParameterBuffer& buffer, StatePlace place, int tensor_rank,
                           comm::Communicator& world)
    : squares_(buffer.gradients(), ranges_of_rank(buffer, place, tensor_rank)), world_(world) {}

void GradientNorm::sum_into(const at::Tensor& sums) const {
  sums.zero_();
  squares_.add_to(sums);
  world_.all_reduce(sums, comm::ReduceOp::kSum).wait();
}

}  // namespace vit_hybrid::zero
