// Sums of squares of tensors, over the owners of each parameter, and over all that the ranks of the world count of the
// gradient.
#include "parallel/zero/norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "parallel/zero/rules/update_loops.h"
#include "parallel/zero/sharding.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/partition.h"
#include "src/base/text.h"
#include "src/kernels/element_vector.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::zero {

namespace {

constexpr int64_t kWidenedChunk = 1024;  // halves that are widened at a time

double square_sum(const float* values, int64_t count) {
  return square_loop(values, count);
}
double square_sum(const double* values, int64_t count) {
  return square_loop(values, count);
}

template <class Half>
double square_sum(const Half* values, int64_t count) {
  std::array<float, kWidenedChunk> chunk;
  double sum = 0;
  for (int64_t i = 0; i < count; i += kWidenedChunk) {
    const int64_t size = std::min(kWidenedChunk, count - i);
    kernels::convert(values + i, chunk.data(), size);
    sum += square_loop(chunk.data(), size);
  }
  return sum;
}

// Elements of a device's vector.
int64_t width_of(const at::Tensor& values) {
  return kernels::kVectorWidth<uint8_t> / static_cast<int64_t>(values.element_size());
}

}  // namespace

double sum_of_squares(const at::Tensor& values) {
  if (!values.is_cpu()) {
    return sum_of_squares_there(values).item<double>();
  }
  double sum = 0.0;
  kernels::with_float_type(values.scalar_type(), [&](auto zero) {
    const auto* const data = values.const_data_ptr<decltype(zero)>();
    sum = sum_over_blocks<double>(values.numel(),
                                  [&](int64_t begin, int64_t count) { return square_sum(data + begin, count); });
  });
  return sum;
}

at::Tensor sum_of_squares_there(const at::Tensor& values) {
  if (values.is_cpu()) {
    return at::full({}, sum_of_squares(values), at::kDouble);
  }
  const auto doubles = values.options().dtype(at::kDouble);
  const at::Tensor sums = at::zeros({2}, doubles);
  const CountedTable all = {{}, counted_range(0, 0, values.numel(), width_of(values))};
  sum_of_squares_cuda(values.view(-1), all, at::empty({kSumOfSquaresWorkspace}, doubles), sums);
  return at::where(sums[1] == 0.0, sums[0], at::full({}, std::numeric_limits<double>::infinity(), doubles));
}

SquareSum::SquareSum(at::Tensor values, std::vector<Range> ranges)
    : values_(std::move(values)), ranges_(std::move(ranges)) {
  if (values_.is_cpu()) {
    return;
  }
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const std::vector<CountedRange> counted = counted_ranges(ranges_, width_of(values_));
  table_ = {table_tensor(counted, values_.device()), counted.empty() ? CountedRange{} : counted.back()};
  workspace_ = at::empty({kSumOfSquaresWorkspace}, values_.options().dtype(at::kDouble));
}

void SquareSum::add_to(const at::Tensor& sums) const {
  if (!values_.is_cpu()) {
    sum_of_squares_cuda(values_, table_, workspace_, sums);
    return;
  }
  double sum = 0.0;
  for (const Range& range : ranges_) {
    sum += sum_of_squares(values_.narrow(0, range.begin, range.size()));
  }
  sums.mutable_data_ptr<double>()[std::isfinite(sum) ? 0 : 1] += std::isfinite(sum) ? sum : 1.0;
}

ParameterNorms::ParameterNorms(const tensor::ParameterBuffer& buffer, const StateGroups& groups,
                               comm::Communicator& tensor)
    : buffer_(buffer), groups_(groups), tensor_(tensor) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  sums_ = at::zeros({static_cast<int64_t>(buffer.specs().size()), 2}, buffer.values().options().dtype(at::kDouble));
}

void ParameterNorms::clear() {
  sums_.zero_();
}

at::Tensor ParameterNorms::sums_of(int parameter) const {
  return sums_[parameter];
}

void ParameterNorms::reduce() {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  if (groups_.shard != nullptr) {
    groups_.shard->all_reduce(sums_, comm::ReduceOp::kSum).wait();
  }
  const auto& specs = buffer_.specs();
  for (size_t i = 0; i < specs.size() && tensor_.rank() != 0; ++i) {
    if (specs[i].replicated_over_tensor) {
      sums_[static_cast<int64_t>(i)].zero_();  // tensor rank 0 counts it
    }
  }
  tensor_.all_reduce(sums_, comm::ReduceOp::kSum).wait();
  // NCCL adds in an order that may differ between groups, and replicas that scaled their steps by other bits would
  // drift apart. Host sums are in rank order.
  if (groups_.replica != nullptr && !sums_.is_cpu()) {
    groups_.replica->broadcast(sums_, 0).wait();
  }
  host_ = sums_.cpu();
}

double ParameterNorms::norm(int parameter, int64_t which) const {
  return std::sqrt(host_.const_data_ptr<double>()[2 * parameter + which]);
}

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
