// Draws the initial weights: element i of a global tensor is draw i of the stream (seed,
// kInitialWeights, name).
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "parallel/comm/operation.h"
#include "parallel/tensor/parameter_buffer.h"
#include "src/base/memory_tracker.h"
#include "src/base/progress.h"
#include "src/base/random.h"
#include "src/base/text.h"

namespace vit_hybrid::tensor {

namespace {

// Rows a task takes at least, in elements: below this a thread costs more than it saves.
constexpr int64_t kGrain = 1 << 14;

// Draws first .. first + count - 1 of a normal. A value beyond the limit is drawn again with the next second index, so
// it stays a function of seed, name and element.
void draw_truncated_normals(const Distribution& initial, const RandomStream& stream, uint64_t first, double* values,
                            size_t count) {
  stream.normals(first, {values, count});
  for (size_t i = 0; i < count; ++i) {
    values[i] *= initial.value;
    for (uint64_t attempt = 1; std::fabs(values[i]) > initial.limit; ++attempt) {
      values[i] = initial.value * stream.normal(first + i, attempt);
    }
  }
}

void draw(const Distribution& initial, const RandomStream& stream, uint64_t first, double* values, size_t count) {
  switch (initial.kind) {
    case Distribution::Kind::kConstant:
      std::fill_n(values, count, initial.value);
      return;
    case Distribution::Kind::kUniform:
      for (size_t i = 0; i < count; ++i) {
        values[i] = initial.value * (2.0 * stream.uniform(first + i) - 1.0);
      }
      return;
    case Distribution::Kind::kTruncatedNormal:
      draw_truncated_normals(initial, stream, first, values, count);
      return;
  }
}

// Linear index of the element at `offset` + the multi-index of row `row` of a box (rows run along
// the last dim).
int64_t row_start(const Shape& shape, const Shape& offset, const Shape& size, int64_t row) {
  int64_t index = 0;
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    int64_t coordinate = offset[dim];
    if (dim + 1 < shape.size()) {
      coordinate += row % size[dim];
      row /= size[dim];
    }
    index += coordinate * stride;
    stride *= shape[dim];
  }
  return index;
}

void fill_box(const ParameterSpec& spec, const BoxMapping& box, const RandomStream& stream, double* values) {
  const int64_t length = box.size.back();
  const int64_t rows = length == 0 ? 0 : num_elements(box.size) / length;
  const int64_t elements = rows * length;
  at::parallel_for(0, elements, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {  // a task may begin or end inside a row
      const int64_t row = begin / length;
      const int64_t first = begin % length;
      const int64_t count = std::min(length - first, end - begin);
      const int64_t global = row_start(spec.global_shape, box.global_offset, box.size, row) + first;
      double* local = values + row_start(spec.local_shape, box.local_offset, box.size, row) + first;
      draw(spec.initial, stream, static_cast<uint64_t>(global), local, static_cast<size_t>(count));
      begin += count;
    }
  });
}

}  // namespace

at::Tensor initial_values(const ParameterSpec& spec, uint64_t seed) {
  const Distribution& initial = spec.initial;
  VH_ASSERT(initial.kind != Distribution::Kind::kTruncatedNormal ||
                (initial.limit > 0.0 && initial.limit >= 0.01 * initial.value),
            str(spec.name, ": a normal of deviation ", initial.value, " truncated at ", initial.limit,
                " would be drawn again too often"));
  const at::Tensor values = at::empty(spec.local_shape, at::kDouble);
  const RandomStream stream(seed, Purpose::kInitialWeights, name_key(spec.name.c_str()));
  for (const BoxMapping& box : spec.boxes) {
    comm::note_work();
    fill_box(spec, box, stream, values.data_ptr<double>());
  }
  return values;
}

void initialize(const std::vector<ParameterSpec>& specs, ParameterWriter& parameters, uint64_t seed) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  Progress progress("drawing the initial weights", std::ssize(specs));
  for (size_t i = 0; i < specs.size(); ++i, progress.add()) {
    parameters.write(static_cast<int>(i),
                     [&](const at::Tensor& values) { values.copy_(initial_values(specs[i], seed)); });
  }
}

}  // namespace vit_hybrid::tensor
