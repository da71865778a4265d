// Samples copied out of host tensors.
#include "data/datasets/memory_dataset.h"

#include <cstring>
#include <utility>

#include "src/base/error.h"
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
  if (parts.target) {
    batch.targets = pick(targets_, samples, parts.memory);
  }
  return batch;
}

}  // namespace vit_hybrid::data
