// The checksum of a tensor: its box cut into rows of values that lie together.
#include "src/checkpoint/format.h"

#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <functional>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/checkpoint/checksum_loops.h"

namespace vit_hybrid::train {

namespace {

constexpr int64_t kGrain = 1 << 17;  // elements that a thread takes at least

template <class T>
uint64_t sum_of_row(const T* values, int64_t count, int64_t stride, int64_t first_index) {
  if (stride == 1) {
    return checksum_of(values, count, first_index);
  }
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += checksum_of(values + i * stride, 1, first_index + i);
  }
  return sum;
}

// One dim of a box: its extent, and by how much a step in it moves in memory and in the global tensor.
struct Dim {
  int64_t size;
  int64_t stride;
  int64_t global_stride;
};

// Dims that lie together in memory and in the global tensor become one, so that rows are long.
std::vector<Dim> joined_dims(std::span<const int64_t> global, const at::Tensor& values) {
  std::vector<Dim> dims;  // the innermost first
  int64_t global_stride = 1;
  for (size_t d = global.size(); d-- > 0;) {
    const auto dim = static_cast<int64_t>(d);
    const Dim next{values.size(dim), values.stride(dim), global_stride};
    if (!dims.empty() && next.stride == dims.back().size * dims.back().stride &&
        next.global_stride == dims.back().size * dims.back().global_stride) {
      dims.back().size *= next.size;
    } else {
      dims.push_back(next);
    }
    global_stride *= global[d];
  }
  if (dims.empty()) {
    dims.push_back({1, 1, 1});
  }
  return dims;
}

template <class T>
uint64_t sum_of_box(const std::vector<Dim>& dims, size_t outer, const T* values, int64_t first_index) {
  const Dim& dim = dims[outer];
  if (outer == 0 && dim.global_stride == 1) {
    return sum_of_row(values, dim.size, dim.stride, first_index);
  }
  uint64_t sum = 0;
  for (int64_t i = 0; i < dim.size; ++i) {
    const T* part = values + i * dim.stride;
    const int64_t index = first_index + i * dim.global_stride;
    sum += outer == 0 ? sum_of_row(part, 1, 1, index) : sum_of_box(dims, outer - 1, part, index);
  }
  return sum;
}

// The same on all threads: sums of sums are the same in any order.
template <class T>
uint64_t sum_in_parallel(const std::vector<Dim>& dims, const T* values, int64_t first_index) {
  const Dim& outer = dims.back();
  int64_t elements = 1;  // of one step in the outer dim
  for (size_t d = 0; d + 1 < dims.size(); ++d) {
    elements *= dims[d].size;
  }
  const int64_t grain = std::max<int64_t>(kGrain / elements, 1);
  return at::parallel_reduce(
      0, outer.size, grain, uint64_t{0},
      [&](int64_t begin, int64_t end, uint64_t sum) {
        std::vector<Dim> part = dims;
        part.back().size = end - begin;
        return sum + sum_of_box(part, part.size() - 1, values + begin * outer.stride,
                                first_index + begin * outer.global_stride);
      },
      std::plus<>());
}

}  // namespace

std::string dataset_path(const std::string& group, const std::string& name) {
  return str(group, "/", name);
}

void TensorChecksum::add(std::span<const int64_t> global, std::span<const int64_t> start, const at::Tensor& values) {
  VH_ASSERT(values.is_cpu() && start.size() == global.size() && values.dim() == static_cast<int64_t>(global.size()),
            str("box of ", values.dim(), " dims of a tensor of ", global.size()));
  if (values.numel() == 0) {
    return;
  }
  int64_t first_index = 0;
  for (size_t d = 0; d < global.size(); ++d) {
    VH_ASSERT(start[d] >= 0 && start[d] + values.size(static_cast<int64_t>(d)) <= global[d], str("box in dim ", d));
    first_index = first_index * global[d] + start[d];
  }
  const auto dims = joined_dims(global, values);
  if (values.scalar_type() == at::kFloat) {
    sum_ += sum_in_parallel(dims, values.const_data_ptr<float>(), first_index);
  } else {
    VH_ASSERT(values.scalar_type() == at::kDouble, str("values of type ", c10::toString(values.scalar_type())));
    sum_ += sum_in_parallel(dims, values.const_data_ptr<double>(), first_index);
  }
}

std::string TensorChecksum::text() const {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, sum_);
  return text;
}

}  // namespace vit_hybrid::train
