// SliceReader: boxes of tensors, and sums that are put together.
#include "src/checkpoint/slice_reader.h"

#include <ATen/ops/empty.h>

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
    checksums_[name] = {};
    holders_[name] = model_.size();
  }
  find_holders(specs);
}

void SliceReader::find_holders(const std::vector<ParameterSpec>& specs) {
  const MemoryScope scope(MemoryClass::kCommunication);
  for (const ParameterSpec& spec : specs) {
    if (const auto found = holders_.find(spec.name); found != holders_.end()) {
      found->second = model_.rank();
    }
  }
  at::Tensor holders = at::empty({static_cast<int64_t>(holders_.size())}, at::TensorOptions(at::kLong));
  auto* rank = holders.mutable_data_ptr<int64_t>();
  for (const auto& [name, holder] : holders_) {
    *rank++ = holder;
  }
  holders = holders.to(device_);
  model_.all_reduce(holders, comm::ReduceOp::kMin).wait();
  holders = holders.cpu();
  const auto* lowest = holders.const_data_ptr<int64_t>();
  for (auto& [name, holder] : holders_) {
    holder = static_cast<int>(*lowest++);
  }
}

void SliceReader::read(const ParameterSpec& spec, const at::Tensor& slice) {
  const std::string dataset = dataset_path(kParametersGroup, spec.name);
  for (const BoxMapping& box : spec.boxes) {
    const at::Tensor values = checkpoint_.read(dataset, box.global_offset, box.size);
    if (!spec.replicated_over_tensor || holders_.at(spec.name) == model_.rank()) {
      checksums_.at(spec.name).add(spec.global_shape, box.global_offset, values);
    }
    narrowed(slice, box.local_offset, box.size).copy_(values);
  }
}

void SliceReader::verify() {
  add_up(checksums_, model_, device_);
  for (const auto& [name, checksum] : checksums_) {
    const CheckpointTensor& stored = *checkpoint_.find(dataset_path(kParametersGroup, name));
    if (checksum.text() != stored.checksum) {
      throw Error(ErrorClass::kBadData,
                  str(checkpoint_.path(), ": the checksum of '", stored.path, "' is ", checksum.text(), ", it was ",
                      stored.checksum, " when it was written"),
                  "the file is damaged: use another checkpoint, or a copy of this one");
    }
  }
}

}  // namespace vit_hybrid::train
