// Lays the parameters of a rank into flat buffers, hands out views of them, and draws their initial values.
#include "parallel/tensor/parameter_buffer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "parallel/comm/operation.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/random.h"
#include "src/base/shareable_tensor.h"
#include "src/base/text.h"

namespace vit_hybrid::tensor {

namespace {

// Parameters and shards begin at multiples of 64 bytes in fp32 (128 in fp64): whole cache lines,
// and what matrix kernels and vector loads want. The gaps stay zero in every buffer.
constexpr int64_t kAlignment = 16;

int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

at::Tensor zeros(int64_t size, const at::TensorOptions& options, MemoryClass memory_class, bool shareable) {
  const MemoryScope scope(memory_class);
  return shareable ? shareable_zeros(size, options) : at::zeros({size}, options);
}

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

Range FlatLayout::shard_of(int bucket, int shard) const {
  const Range range = buckets.at(static_cast<size_t>(bucket)).range;
  const Range part = Partition(range.size(), shards).part(shard);
  return {range.begin + part.begin, range.begin + part.end};
}

int64_t bucket_elements(int64_t bytes, at::ScalarType gradient, at::DeviceType device) {
  const int64_t wanted = bytes > 0 ? bytes : int64_t{device == at::kCPU ? 4 : 25} << 20;
  return std::max<int64_t>(1, wanted / static_cast<int64_t>(at::elementSize(gradient)));
}

FlatLayout make_flat_layout(const std::vector<ParameterSpec>& specs, int64_t bucket_elements, int shards) {
  std::vector<int64_t> sizes;
  for (const ParameterSpec& spec : specs) {
    sizes.push_back(num_elements(spec.local_shape));
  }
  return flat_layout_of_sizes(sizes, bucket_elements, shards);
}

FlatLayout flat_layout_of_sizes(const std::vector<int64_t>& sizes, int64_t bucket_elements, int shards) {
  VH_ASSERT(shards >= 1 && bucket_elements >= 1, str("shards ", shards, ", bucket elements ", bucket_elements));
  FlatLayout layout;
  layout.shards = shards;
  layout.slots.resize(sizes.size());
  layout.bucket_of.resize(sizes.size());
  FlatLayout::Bucket open;
  int64_t position = 0;
  for (size_t i = sizes.size(); i-- > 0;) {
    layout.slots[i] = {position, position + sizes[i]};
    layout.bucket_of[i] = static_cast<int>(layout.buckets.size());
    open.members.push_back(static_cast<int>(i));
    position = round_up(position + sizes[i], kAlignment);
    if (position - open.range.begin >= bucket_elements || i == 0) {
      // A bucket of empty slices still gets one line a shard, so that no collective is empty.
      const int64_t filled = std::max<int64_t>(position - open.range.begin, 1);
      open.range.end = open.range.begin + round_up(filled, kAlignment * shards);
      position = open.range.end;
      layout.buckets.push_back(std::exchange(open, {{position, position}, {}}));
    }
  }
  layout.size = position;
  return layout;
}

ParameterBuffer::ParameterBuffer(std::vector<ParameterSpec> specs, FlatLayout layout, at::ScalarType compute,
                                 std::optional<at::ScalarType> gradient, at::Device device, bool shareable)
    : specs_(std::move(specs)),
      layout_(std::move(layout)),
      values_(zeros(layout_.size, at::TensorOptions(compute).device(device), MemoryClass::kParameters, shareable)),
      arrivals_(layout_.buckets.size()) {
  if (gradient) {
    gradients_ = zeros(layout_.size, values_.options().dtype(*gradient), MemoryClass::kGradients, shareable);
  }
  VH_ASSERT(layout_.slots.size() == specs_.size(),
            str(layout_.slots.size(), " slots for ", specs_.size(), " parameters"));
  parameters_.reserve(specs_.size());
  for (size_t i = 0; i < specs_.size(); ++i) {
    const Range slot = layout_.slots[i];
    const Shape& shape = specs_[i].local_shape;
    const auto view = [&](const at::Tensor& flat) { return flat.narrow(0, slot.begin, slot.size()).view(shape); };
    parameters_.push_back({view(values_), has_gradients() ? view(gradients_) : at::Tensor(), static_cast<int>(i)});
    const bool is_new = index_of_.emplace(specs_[i].name, static_cast<int>(i)).second;
    VH_ASSERT(is_new, str("two parameters are called ", specs_[i].name));
  }
}

ParameterBuffer::~ParameterBuffer() {
  if (std::uncaught_exceptions() == 0) {
    await_all();
  }
}

const at::Tensor& ParameterBuffer::values() const {
  await_all();
  return values_;
}

const Parameter& ParameterBuffer::parameter(int index) const {
  await({index, index + 1});
  return parameters_[static_cast<size_t>(index)];
}

void ParameterBuffer::await(const Range& parameters) const {
  for (int64_t i = parameters.begin; i < parameters.end; ++i) {
    arrivals_[static_cast<size_t>(layout_.bucket_of.at(static_cast<size_t>(i)))].wait();
  }
}

void ParameterBuffer::await_all() const {
  for (comm::Work& arrival : arrivals_) {
    arrival.wait();
  }
}

void ParameterBuffer::write(int parameter, const std::function<void(const at::Tensor& values)>& fill) {
  fill(this->parameter(parameter).value);
  bump_version();
}

const Parameter& ParameterBuffer::parameter(const std::string& name) const {
  const auto found = index_of_.find(name);
  VH_ASSERT(found != index_of_.end(), str("this rank has no parameter called ", name));
  return parameter(found->second);
}

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
