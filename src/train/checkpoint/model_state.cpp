// Loading of weights: every rank reads its boxes, and together they check the sums.
#include "src/train/checkpoint/model_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/train/checkpoint/agreed_over.h"
#include "src/train/checkpoint/model_json.h"

namespace vit_hybrid::train {

namespace {

using comm::Communicator;
using comm::ReduceOp;
using tensor::BoxMapping;
using tensor::ParameterSpec;

at::Tensor narrowed(at::Tensor values, const tensor::Shape& offset, const tensor::Shape& size) {
  for (size_t d = 0; d < offset.size(); ++d) {
    values = values.narrow(static_cast<int64_t>(d), offset[d], size[d]);
  }
  return values;
}

std::string options_of(const CheckpointReader& checkpoint) {
  return str("the checkpoint's model is ", checkpoint.info().model);
}

// The model option that a dim of a parameter follows.
std::string options_behind(const std::string& name) {
  if (name == "pos_embed") {
    return "--image-size, --patch-size, --pooling or --embed-dim";
  }
  if (name.starts_with("patch_embed.")) {
    return "--in-channels, --patch-size or --embed-dim";
  }
  if (name.starts_with("head.")) {
    return "--task, --out-channels, --num-classes, --patch-size or --embed-dim";
  }
  return name.find(".mlp.") != std::string::npos ? "--mlp-hidden or --embed-dim" : "--embed-dim";
}

void check_fit(const CheckpointReader& checkpoint, const ParameterSpec& spec) {
  const CheckpointTensor* const stored = checkpoint.find(dataset_path(kParametersGroup, spec.name));
  if (stored == nullptr) {
    throw Error(ErrorClass::kUsage,
                str(checkpoint.path(), " has no parameter ", spec.name, " (", join(spec.global_shape, " x "),
                    ") of this model: --task, --depth or --pooling differ"),
                options_of(checkpoint));
  }
  if (stored->shape != spec.global_shape) {
    throw Error(ErrorClass::kUsage,
                str("the parameter ", spec.name, " is ", join(stored->shape, " x "), " in ", checkpoint.path(), " and ",
                    join(spec.global_shape, " x "), " in this model: ", options_behind(spec.name), " differ"),
                options_of(checkpoint));
  }
}

// Which rank counts a replicated parameter: the lowest that holds it. Every parameter of the checkpoint must be held by
// somebody.
class Sums {
 public:
  Sums(const CheckpointReader& checkpoint, Communicator& model, c10::Device device)
      : checkpoint_(checkpoint), model_(model), device_(device) {
    for (const CheckpointTensor& entry : checkpoint.tensors()) {
      if (entry.path.starts_with(dataset_path(kParametersGroup, ""))) {
        entries_.push_back(&entry);
      }
    }
    sums_.resize(entries_.size());
  }

  /// Collective over the model.
  void choose_holders(const std::vector<ParameterSpec>& specs) {
    const MemoryScope scope(MemoryClass::kCommunication);
    at::Tensor lowest = at::full({num()}, model_.size(), at::TensorOptions(at::kLong));
    for (const ParameterSpec& spec : specs) {
      lowest[index_of(spec)] = model_.rank();
    }
    lowest = lowest.to(device_);
    model_.all_reduce(lowest, ReduceOp::kMin).wait();
    holders_ = lowest.cpu();
  }

  void refuse_unheld() const {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (holders_.const_data_ptr<int64_t>()[i] == model_.size()) {
        throw Error(
            ErrorClass::kUsage,
            str(checkpoint_.path(), " has a parameter ", entries_[i]->path, " (", join(entries_[i]->shape, " x "),
                ") that this model has not: --task, --depth or --pooling differ"),
            options_of(checkpoint_));
      }
    }
  }

  void add(const ParameterSpec& spec, const BoxMapping& box, const at::Tensor& values) {
    const int64_t index = index_of(spec);
    if (!spec.replicated_over_tensor || holders_.const_data_ptr<int64_t>()[index] == model_.rank()) {
      sums_[static_cast<size_t>(index)].add(spec.global_shape, box.global_offset, values);
    }
  }

  /// Adds up over the ranks, in halves of 32 bits, which cannot overflow. Collective over the model.
  void reduce() {
    const MemoryScope scope(MemoryClass::kCommunication);
    at::Tensor halves = at::empty({num(), 2}, at::TensorOptions(at::kLong));
    auto* const words = halves.mutable_data_ptr<int64_t>();
    for (size_t i = 0; i < sums_.size(); ++i) {
      words[2 * i] = static_cast<int64_t>(sums_[i].value() & 0xffffffffU);
      words[2 * i + 1] = static_cast<int64_t>(sums_[i].value() >> 32U);
    }
    at::Tensor total = halves.to(device_);
    model_.all_reduce(total, ReduceOp::kSum).wait();
    total = total.cpu();
    const auto* const added = total.const_data_ptr<int64_t>();
    for (size_t i = 0; i < sums_.size(); ++i) {
      sums_[i] = TensorChecksum();
      sums_[i].add(static_cast<uint64_t>(added[2 * i]) + (static_cast<uint64_t>(added[2 * i + 1]) << 32U));
    }
  }

  void verify() const {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (sums_[i].text() != entries_[i]->checksum) {
        throw Error(ErrorClass::kBadData,
                    str(checkpoint_.path(), ": the checksum of '", entries_[i]->path, "' is ", sums_[i].text(),
                        ", it was ", entries_[i]->checksum, " when it was written"),
                    "the file is damaged: use an older checkpoint");
      }
    }
  }

 private:
  int64_t num() const { return static_cast<int64_t>(entries_.size()); }
  int64_t index_of(const ParameterSpec& spec) const {
    const CheckpointTensor* const entry = checkpoint_.find(dataset_path(kParametersGroup, spec.name));
    return entry - entries_.front();  // they lie together in the table
  }

  const CheckpointReader& checkpoint_;
  Communicator& model_;
  c10::Device device_;
  std::vector<const CheckpointTensor*> entries_;
  std::vector<TensorChecksum> sums_;
  at::Tensor holders_;
};

void read_slice(const CheckpointReader& checkpoint, const ParameterSpec& spec, const at::Tensor& slice, Sums& sums) {
  const std::string dataset = dataset_path(kParametersGroup, spec.name);
  for (const BoxMapping& box : spec.boxes) {
    const at::Tensor values = checkpoint.read(dataset, box.global_offset, box.size);
    sums.add(spec, box, values);
    narrowed(slice, box.local_offset, box.size).copy_(values);
  }
}

}  // namespace

void load_parameters(const CheckpointReader& checkpoint, tensor::ParameterBuffer& buffer, comm::Communicator& model) {
  const auto& specs = buffer.specs();
  const c10::Device device = buffer.values().device();
  agreed_over(model, device, [&] {
    for (const ParameterSpec& spec : specs) {
      check_fit(checkpoint, spec);
    }
  });
  Sums sums(checkpoint, model, device);
  sums.choose_holders(specs);
  sums.refuse_unheld();
  agreed_over(model, device, [&] {
    for (size_t i = 0; i < specs.size(); ++i) {
      read_slice(checkpoint, specs[i], buffer.parameter(static_cast<int>(i)).value, sums);
    }
  });
  sums.reduce();
  sums.verify();
  buffer.bump_version();
}

}  // namespace vit_hybrid::train
