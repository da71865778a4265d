// Lays the parameters of a rank into flat buffers and hands out views of them.
#include "parallel/tensor/parameter_buffer.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::tensor {

namespace {

// Parameters and shards begin at multiples of 64 bytes in fp32 (128 in fp64): whole cache lines,
// and what matrix kernels and vector loads want. The gaps stay zero in every buffer.
constexpr int64_t kAlignment = 16;

int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

at::Tensor zeros(int64_t size, at::ScalarType type, at::Device device, MemoryClass memory_class) {
  const MemoryScope scope(memory_class);
  return at::zeros({size}, at::TensorOptions(type).device(device));
}

}  // namespace

Range FlatLayout::shard_of(int bucket, int shard) const {
  const Range range = buckets.at(static_cast<size_t>(bucket)).range;
  const Range part = Partition(range.size(), shards).part(shard);
  return {range.begin + part.begin, range.begin + part.end};
}

FlatLayout make_flat_layout(const std::vector<ParameterSpec>& specs, int64_t bucket_elements, int shards) {
  VH_ASSERT(shards >= 1 && bucket_elements >= 1, str("shards ", shards, ", bucket elements ", bucket_elements));
  FlatLayout layout;
  layout.shards = shards;
  layout.slots.resize(specs.size());
  FlatLayout::Bucket open;
  int64_t position = 0;
  for (size_t i = specs.size(); i-- > 0;) {
    const int64_t size = num_elements(specs[i].local_shape);
    layout.slots[i] = {position, position + size};
    open.members.push_back(static_cast<int>(i));
    position = round_up(position + size, kAlignment);
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
                                 std::optional<at::ScalarType> gradient, at::Device device)
    : specs_(std::move(specs)),
      layout_(std::move(layout)),
      values_(zeros(layout_.size, compute, device, MemoryClass::kParameters)),
      gradients_(gradient ? zeros(layout_.size, *gradient, device, MemoryClass::kGradients) : at::Tensor()) {
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

void ParameterBuffer::write(int parameter, const std::function<void(const at::Tensor& values)>& fill) {
  fill(this->parameter(parameter).value);
  bump_version();
}

const Parameter& ParameterBuffer::parameter(const std::string& name) const {
  const auto found = index_of_.find(name);
  VH_ASSERT(found != index_of_.end(), str("this rank has no parameter called ", name));
  return parameter(found->second);
}

}  // namespace vit_hybrid::tensor
