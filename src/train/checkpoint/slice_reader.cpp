// SliceReader: boxes of tensors, and sums that are put together.
#include "src/train/checkpoint/slice_reader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

using tensor::BoxMapping;
using tensor::ParameterSpec;

at::Tensor narrowed(at::Tensor values, const tensor::Shape& offset, const tensor::Shape& size) {
  for (size_t d = 0; d < offset.size(); ++d) {
    values = values.narrow(static_cast<int64_t>(d), offset[d], size[d]);
  }
  return values;
}

}  // namespace

SliceReader::SliceReader(const CheckpointReader& checkpoint, const std::vector<std::string>& names,
                         const std::vector<ParameterSpec>& specs, comm::Communicator& model, c10::Device device)
    : checkpoint_(checkpoint), model_(model), device_(device) {
  for (const std::string& name : names) {
    sums_[name] = {};
  }
  find_holders(specs);
}

void SliceReader::find_holders(const std::vector<ParameterSpec>& specs) {
  const MemoryScope scope(MemoryClass::kCommunication);
  for (auto& [name, sum] : sums_) {
    sum.holder = model_.size();
  }
  for (const ParameterSpec& spec : specs) {
    if (const auto found = sums_.find(spec.name); found != sums_.end()) {
      found->second.holder = model_.rank();
    }
  }
  at::Tensor holders = at::empty({static_cast<int64_t>(sums_.size())}, at::TensorOptions(at::kLong));
  auto* holder = holders.mutable_data_ptr<int64_t>();
  for (const auto& [name, sum] : sums_) {
    *holder++ = sum.holder;
  }
  holders = holders.to(device_);
  model_.all_reduce(holders, comm::ReduceOp::kMin).wait();
  holders = holders.cpu();
  const auto* lowest = holders.const_data_ptr<int64_t>();
  for (auto& [name, sum] : sums_) {
    sum.holder = static_cast<int>(*lowest++);
  }
}

void SliceReader::read(const ParameterSpec& spec, const at::Tensor& slice) {
  const std::string dataset = dataset_path(kParametersGroup, spec.name);
  Sum& sum = sums_.at(spec.name);
  for (const BoxMapping& box : spec.boxes) {
    const at::Tensor values = checkpoint_.read(dataset, box.global_offset, box.size);
    if (!spec.replicated_over_tensor || sum.holder == model_.rank()) {
      sum.checksum.add(spec.global_shape, box.global_offset, values);
    }
    narrowed(slice, box.local_offset, box.size).copy_(values);
  }
}

// In halves of 32 bits, which cannot overflow.
void SliceReader::add_up() {
  const MemoryScope scope(MemoryClass::kCommunication);
  at::Tensor halves = at::empty({2 * static_cast<int64_t>(sums_.size())}, at::TensorOptions(at::kLong));
  auto* half = halves.mutable_data_ptr<int64_t>();
  for (const auto& [name, sum] : sums_) {
    *half++ = static_cast<int64_t>(sum.checksum.value() & 0xffffffffU);
    *half++ = static_cast<int64_t>(sum.checksum.value() >> 32U);
  }
  halves = halves.to(device_);
  model_.all_reduce(halves, comm::ReduceOp::kSum).wait();
  halves = halves.cpu();
  const auto* added = halves.const_data_ptr<int64_t>();
  for (auto& [name, sum] : sums_) {
    sum.checksum = {};
    sum.checksum.add(static_cast<uint64_t>(added[0]) + (static_cast<uint64_t>(added[1]) << 32U));
    added += 2;
  }
}

void SliceReader::verify() {
  add_up();
  for (const auto& [name, sum] : sums_) {
    const CheckpointTensor& stored = *checkpoint_.find(dataset_path(kParametersGroup, name));
    if (sum.checksum.text() != stored.checksum) {
      throw Error(ErrorClass::kBadData,
                  str(checkpoint_.path(), ": the checksum of '", stored.path, "' is ", sum.checksum.text(), ", it was ",
                      stored.checksum, " when it was written"),
                  "the file is damaged: use another checkpoint, or a copy of this one");
    }
  }
}

}  // namespace vit_hybrid::train
