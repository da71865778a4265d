// Local sums of squares, and the one reduction that makes them a norm.
#include "parallel/zero/gradient_norm.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "parallel/zero/sum_of_squares.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::zero {

namespace {

// The slots that this rank counts, cut to what it owns; neighbours are joined over the gaps, which are zero, also over
// the border of two buckets of which it owns the end and the begin.
std::vector<Range> counted_ranges(const tensor::ParameterBuffer& buffer, ZeroStage stage, int data_rank,
                                  int tensor_rank) {
  std::vector<Range> counted;
  if (stage == ZeroStage::kReplicated && data_rank != 0) {
    return counted;
  }
  const auto& layout = buffer.layout();
  bool joins = false;
  int64_t owned_end = 0;
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    const Range own = owned_range(layout, static_cast<int>(bucket), stage, data_rank);
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

GradientNorm::GradientNorm(const tensor::ParameterBuffer& buffer, ZeroStage stage, int data_rank, int tensor_rank,
                           comm::Communicator& world)
    : buffer_(buffer), counted_(counted_ranges(buffer, stage, data_rank, tensor_rank)), world_(world) {}

NormResult GradientNorm::compute() const {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor total = at::zeros({2}, buffer_.gradients().options().dtype(at::kDouble));
  const at::Tensor sum = sum_of_squares_there(buffer_.gradients(), counted_);
  // The sum, and the number of ranks where it is not finite. The host waits once, for the result.
  const at::Tensor finite = at::isfinite(sum);
  total[1].copy_(finite.logical_not());
  total[0].copy_(at::where(finite, sum, at::zeros_like(sum)));
  world_.all_reduce(total, comm::ReduceOp::kSum).wait();
  const at::Tensor host = total.cpu();
  const double* values = host.const_data_ptr<double>();
  if (values[1] != 0.0 || !std::isfinite(values[0])) {
    return {std::numeric_limits<double>::quiet_NaN(), false};
  }
  return {std::sqrt(values[0]), true};
}

double clip_coefficient(double norm, double max_norm) {
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace vit_hybrid::zero
