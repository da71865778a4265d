// Local sums of squares, and the one reduction that makes them a norm.
#include "parallel/zero/gradient_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

namespace {

// Elements of one partial sum: fixed, so that the result does not depend on the number of threads.
constexpr int64_t kBlock = 1 << 14;

template <class T>
double block_sum_of_squares(const T* values, int64_t count) {
  constexpr int64_t kLanes = 16;  // independent sums, so that additions need not wait for each other
  std::array<double, kLanes> sums{};
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[static_cast<size_t>(lane)] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : sums) {
    sum += lane;
  }
  for (int64_t i = whole; i < count; ++i) {
    sum += static_cast<double>(values[i]) * values[i];
  }
  return sum;
}

template <class T>
double host_sum_of_squares(const T* values, int64_t count) {
  const int64_t num_blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> partial(static_cast<size_t>(num_blocks));
  at::parallel_for(0, num_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      partial[static_cast<size_t>(block)] = block_sum_of_squares(values + first, std::min(kBlock, count - first));
    }
  });
  double sum = 0;
  for (const double value : partial) {
    sum += value;
  }
  return sum;
}

double sum_of_squares(const at::Tensor& values) {
  if (!values.is_cpu()) {
    const double norm = at::linalg_vector_norm(values, 2.0, {}, false, at::kDouble).item<double>();
    return norm * norm;
  }
  if (values.scalar_type() == at::kFloat) {
    return host_sum_of_squares(values.const_data_ptr<float>(), values.numel());
  }
  VH_ASSERT(values.scalar_type() == at::kDouble, str("gradients of type ", c10::toString(values.scalar_type())));
  return host_sum_of_squares(values.const_data_ptr<double>(), values.numel());
}

// The slots that this rank counts, cut to what it owns; neighbours are joined over the gaps, which are zero.
std::vector<Range> counted_ranges(const tensor::ParameterBuffer& buffer, ZeroStage stage, int data_rank,
                                  int tensor_rank) {
  std::vector<Range> counted;
  if (stage == ZeroStage::kReplicated && data_rank != 0) {
    return counted;
  }
  const auto& layout = buffer.layout();
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    const Range own = owned_range(layout, static_cast<int>(bucket), stage, data_rank);
    bool joins = false;
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
  double sum = 0;
  for (const Range& range : counted_) {
    sum += sum_of_squares(buffer_.gradients().narrow(0, range.begin, range.size()));
  }
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const bool finite = std::isfinite(sum);
  at::Tensor host = at::empty({2}, at::kDouble);
  host.data_ptr<double>()[0] = finite ? sum : 0.0;
  host.data_ptr<double>()[1] = finite ? 0.0 : 1.0;
  const at::Tensor total = host.to(buffer_.gradients().device());
  world_.all_reduce(total, comm::ReduceOp::kSum).wait();
  host.copy_(total);
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
