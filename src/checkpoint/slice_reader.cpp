// SliceReader: boxes of global tensors into views of a rank's parameters, with the checksums of what was read.
#include "src/checkpoint/slice_reader.h"

#include <algorithm>
#include <optional>

#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

using tensor::BoxMapping;
using tensor::ParameterSpec;
using tensor::Shape;

namespace {

// Adds the boxes of `range`, which lies in the sub-array of the dims from `dim` on at the corner `corner`.
void add_boxes(const Shape& shape, size_t dim, Shape corner, Range range, std::vector<BoxMapping>& out) {
  if (range.begin >= range.end) {
    return;
  }
  BoxMapping box{corner, corner, Shape(shape.size(), 1)};
  if (dim == shape.size()) {
    out.push_back(std::move(box));
    return;
  }
  int64_t row = 1;  // elements of one step in `dim`
  for (size_t d = dim + 1; d < shape.size(); ++d) {
    row *= shape[d];
    box.size[d] = shape[d];
  }
  const auto part_of_row = [&](int64_t index, Range part) {
    corner[dim] = index;
    add_boxes(shape, dim + 1, corner, {part.begin - index * row, part.end - index * row}, out);
  };
  const int64_t first_whole = (range.begin + row - 1) / row;
  const int64_t end_whole = range.end / row;
  if (first_whole > end_whole) {  // within one row
    part_of_row(end_whole, range);
    return;
  }
  if (range.begin < first_whole * row) {
    part_of_row(first_whole - 1, {range.begin, first_whole * row});
  }
  if (first_whole < end_whole) {
    box.global_offset[dim] = box.local_offset[dim] = first_whole;
    box.size[dim] = end_whole - first_whole;
    out.push_back(box);
  }
  if (end_whole * row < range.end) {
    part_of_row(end_whole, {end_whole * row, range.end});
  }
}

// The part of `box` (of the local slice) that lies in `mapping`.
std::optional<BoxMapping> intersection(const BoxMapping& box, const BoxMapping& mapping) {
  BoxMapping common = box;
  for (size_t d = 0; d < box.size.size(); ++d) {
    const int64_t begin = std::max(box.local_offset[d], mapping.local_offset[d]);
    const int64_t end = std::min(box.local_offset[d] + box.size[d], mapping.local_offset[d] + mapping.size[d]);
    if (begin >= end) {
      return std::nullopt;
    }
    common.local_offset[d] = begin;
    common.global_offset[d] = mapping.global_offset[d] + begin - mapping.local_offset[d];
    common.size[d] = end - begin;
  }
  return common;
}

at::Tensor narrowed(at::Tensor values, const Shape& offset, const Shape& size) {
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

void refuse_unheld(const CheckpointReader& checkpoint, const std::vector<std::string>& names,
                   const SliceReader& reader) {
  for (const std::string& name : names) {
    if (!reader.is_held(name)) {
      const CheckpointTensor& entry = *checkpoint.find(dataset_path(kParametersGroup, name));
      throw Error(ErrorClass::kUsage,
                  str(checkpoint.path(), " has a parameter ", entry.path, " (", join(entry.shape, " x "),
                      ") that this model has not: --task, --depth or --pooling differ"),
                  options_of(checkpoint));
    }
  }
}

}  // namespace

std::vector<BoxMapping> boxes_of_range(const Shape& shape, Range range) {
  VH_ASSERT(range.begin >= 0 && range.end <= tensor::num_elements(shape), str(range.begin, " to ", range.end));
  std::vector<BoxMapping> boxes;
  add_boxes(shape, 0, Shape(shape.size(), 0), range, boxes);
  return boxes;
}

std::vector<BoxMapping> boxes_of_range(const ParameterSpec& spec, Range range) {
  std::vector<BoxMapping> out;
  for (const BoxMapping& box : boxes_of_range(spec.local_shape, range)) {
    for (const BoxMapping& mapping : spec.boxes) {
      if (auto common = intersection(box, mapping)) {
        out.push_back(std::move(*common));
      }
    }
  }
  return out;
}

SliceReader::SliceReader(const CheckpointReader& checkpoint, const std::vector<std::string>& names,
                         const std::vector<ParameterSpec>& specs, const comm::MpiGroup& model)
    : checkpoint_(checkpoint), model_(model) {
  for (const std::string& name : names) {
    checksums_[name] = {};
    holders_[name] = model_.size();
  }
  for (const ParameterSpec& spec : specs) {
    if (const auto found = holders_.find(spec.name); found != holders_.end()) {
      found->second = model_.rank();
    }
  }
  std::vector<int64_t> lowest;
  for (const auto& [name, holder] : holders_) {
    lowest.push_back(holder);
  }
  model_.min(lowest);
  auto rank = lowest.begin();
  for (auto& [name, holder] : holders_) {
    holder = static_cast<int>(*rank++);
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
  add_up(checksums_, model_);
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

void load_parameters(const CheckpointReader& checkpoint, const std::vector<ParameterSpec>& specs,
                     tensor::ParameterWriter& parameters, const comm::MpiGroup& model) {
  comm::agreed(model, [&] {
    for (const ParameterSpec& spec : specs) {
      check_fit(checkpoint, spec);
    }
  });
  const std::vector<std::string> names = checkpoint.parameter_names();
  SliceReader reader(checkpoint, names, specs, model);
  refuse_unheld(checkpoint, names, reader);
  Progress progress("reading the weights of " + checkpoint.path(), std::ssize(specs));
  comm::agreed(model, [&] {
    for (size_t i = 0; i < specs.size(); ++i) {
      parameters.write(static_cast<int>(i), [&](const at::Tensor& values) { reader.read(specs[i], values); });
      progress.add();
    }
  });
  reader.verify();
}

}  // namespace vit_hybrid::train
