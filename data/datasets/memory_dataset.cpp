// MemoryDataset: samples copied out of host tensors, and drawn by keys.
#include "data/datasets/memory_dataset.h"

#include <cstring>
#include <utility>

#include "data/datasets/year_files.h"
#include "data/reading/box_runs.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

at::Tensor pick(const at::Tensor& all, std::span<const int64_t> samples, HostMemory memory) {
  std::vector<int64_t> shape = all.sizes().vec();
  shape.front() = static_cast<int64_t>(samples.size());
  at::Tensor picked = host_tensor(shape, all.scalar_type(), memory);
  const size_t bytes = all.nbytes() / static_cast<size_t>(all.size(0));
  const auto* from = static_cast<const char*>(all.const_data_ptr());
  auto* to = static_cast<char*>(picked.data_ptr());
  for (const int64_t sample : samples) {
    VH_ASSERT(sample >= 0 && sample < all.size(0), str("sample ", sample, " of ", all.size(0)));
    std::memcpy(to, from + static_cast<size_t>(sample) * bytes, bytes);
    to += bytes;
  }
  return picked;
}

// Streams of the purpose kSyntheticData.
constexpr uint64_t kBaseStream = 0;
constexpr uint64_t kShiftStream = 1;
constexpr uint64_t kClassStream = 2;

// Uniform in (-sqrt 3, sqrt 3): variance 1, and four values from one block of the generator.
std::vector<float> noise(int64_t count, uint64_t seed) {
  constexpr double kScale = 3.4641016151377544 / 4294967296.0;
  const RandomStream stream(seed, Purpose::kSyntheticData, kBaseStream);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); i += 4) {
    const PhiloxBlock block = stream.block(i / 4);
    for (size_t k = 0; k < 4 && i + k < values.size(); ++k) {
      values[i + k] = static_cast<float>((static_cast<double>(block[k]) - 2147483647.5) * kScale);
    }
  }
  return values;
}

}  // namespace

MemoryDataset::MemoryDataset(at::Tensor inputs, at::Tensor targets, std::vector<std::string> channel_names)
    : inputs_(std::move(inputs)), targets_(std::move(targets)), channel_names_(std::move(channel_names)) {
  VH_ASSERT(inputs_.dim() >= 1 && inputs_.size(0) >= 1 && targets_.dim() >= 1 && targets_.size(0) == inputs_.size(0),
            "as many targets as inputs");
  VH_ASSERT(inputs_.is_cpu() && inputs_.is_contiguous() && inputs_.scalar_type() == at::kFloat, "inputs");
  VH_ASSERT(targets_.is_cpu() && targets_.is_contiguous() &&
                (targets_.scalar_type() == at::kFloat || targets_.scalar_type() == at::kLong),
            "targets");
}

MemoryDataset MemoryDataset::pairs(const at::Tensor& fields, std::vector<std::string> channel_names) {
  VH_ASSERT(fields.dim() == 4 && fields.size(0) >= 2 && fields.is_contiguous(), "fields at two times or more");
  const int64_t count = fields.size(0) - 1;
  return {fields.narrow(0, 0, count), fields.narrow(0, 1, count), std::move(channel_names)};
}

Batch MemoryDataset::read(std::span<const int64_t> samples, Parts parts, int64_t) const {
  Batch batch;
  batch.samples.assign(samples.begin(), samples.end());
  if (parts.input) {
    batch.inputs = pick(inputs_, samples, parts.memory);
  }
  if (parts.state && parts.input) {
    batch.states_in_inputs = Range{0, inputs_.size(1)};
  } else if (parts.state) {
    batch.states = pick(inputs_, samples, parts.memory);
  }
  if (parts.target) {
    batch.targets = pick(targets_, samples, parts.memory);
  }
  return batch;
}

SyntheticDataset::SyntheticDataset(int64_t size, std::vector<int64_t> shape, int64_t out_channels, int64_t num_classes,
                                   uint64_t seed)
    : size_(size),
      shape_(std::move(shape)),
      out_channels_(out_channels),
      num_classes_(num_classes),
      seed_(seed),
      pool_(std::make_shared<TensorPool>()) {
  VH_ASSERT(size_ >= 1 && shape_.size() == 3 && num_elements(shape_) >= 1, str(size_, " samples of ", join(shape_)));
  base_ = noise(num_elements(shape_), seed_);
}

SyntheticDataset SyntheticDataset::fields(int64_t size, std::vector<int64_t> shape, uint64_t seed,
                                          int64_t out_channels) {
  out_channels = out_channels > 0 ? out_channels : shape.front();
  return {size, std::move(shape), out_channels, 0, seed};
}

SyntheticDataset SyntheticDataset::images(int64_t size, std::vector<int64_t> shape, int64_t num_classes,
                                          uint64_t seed) {
  VH_ASSERT(num_classes >= 1, str(num_classes, " classes"));
  return {size, std::move(shape), 0, num_classes, seed};
}

std::vector<int64_t> SyntheticDataset::target_shape() const {
  return has_classes() ? std::vector<int64_t>{} : std::vector<int64_t>{out_channels_, shape_[1], shape_[2]};
}

std::vector<std::string> SyntheticDataset::channel_names() const {
  return has_classes() ? std::vector<std::string>{} : data::channel_names(out_channels_, "", "synthetic data");
}

Batch SyntheticDataset::read(std::span<const int64_t> samples, Parts parts, int64_t) const {
  Batch batch;
  batch.samples.assign(samples.begin(), samples.end());
  if (parts.input) {
    batch.inputs = rolled(samples, 0, shape_[0], parts.memory);
  }
  if (parts.state && parts.input && out_channels_ <= shape_[0]) {
    batch.states_in_inputs = Range{0, out_channels_};
  } else if (parts.state) {
    batch.states = rolled(samples, 0, out_channels_, parts.memory);
  }
  if (parts.target) {
    batch.targets = has_classes() ? classes(samples, parts.memory) : rolled(samples, 1, out_channels_, parts.memory);
  }
  return batch;
}

at::Tensor SyntheticDataset::rolled(std::span<const int64_t> samples, int64_t more, int64_t channels,
                                    HostMemory memory) const {
  const RandomStream stream(seed_, Purpose::kSyntheticData, kShiftStream);
  const auto count = static_cast<int64_t>(base_.size());
  at::Tensor fields =
      pool_->take({static_cast<int64_t>(samples.size()), channels, shape_[1], shape_[2]}, at::kFloat, memory);
  auto* to = fields.data_ptr<float>();
  for (const int64_t sample : samples) {
    VH_ASSERT(sample >= 0 && sample < size_, str("sample ", sample, " of ", size_));
    const auto draw = static_cast<int64_t>(stream.below(static_cast<uint64_t>(count), static_cast<uint64_t>(sample)));
    for (int64_t left = channels * shape_[1] * shape_[2], from = (draw + more) % count; left > 0; from = 0) {
      const int64_t run = std::min(left, count - from);
      to = std::copy_n(base_.begin() + from, run, to);
      left -= run;
    }
  }
  return fields;
}

at::Tensor SyntheticDataset::classes(std::span<const int64_t> samples, HostMemory memory) const {
  const RandomStream stream(seed_, Purpose::kSyntheticData, kClassStream);
  at::Tensor labels = host_tensor({static_cast<int64_t>(samples.size())}, at::kLong, memory);
  auto* to = labels.data_ptr<int64_t>();
  for (const int64_t sample : samples) {
    *to++ = static_cast<int64_t>(stream.below(static_cast<uint64_t>(num_classes_), static_cast<uint64_t>(sample)));
  }
  return labels;
}

}  // namespace vit_hybrid::data
