// MemoryDataset: samples that lie in host tensors.
#pragma once

#include <string>
#include <vector>

#include "data/datasets/dataset.h"

namespace vit_hybrid::data {

/// Small data made in memory. Sample s is (inputs[s], targets[s]).
class MemoryDataset : public Dataset {
 public:
  /// `inputs` [n, ...] float32; `targets` [n, ...] float32 fields or [n] int64 classes; n >= 1.
  MemoryDataset(at::Tensor inputs, at::Tensor targets, std::vector<std::string> channel_names = {});
  /// Pairs of consecutive fields: `fields` [times, channels, height, width] float32, normalized, at least two times.
  static MemoryDataset pairs(const at::Tensor& fields, std::vector<std::string> channel_names);

  int64_t size() const override { return inputs_.size(0); }
  std::vector<int64_t> input_shape() const override { return inputs_.sizes().slice(1).vec(); }
  std::vector<int64_t> target_shape() const override { return targets_.sizes().slice(1).vec(); }
  at::ScalarType target_type() const override { return targets_.scalar_type(); }
  std::vector<std::string> channel_names() const override { return channel_names_; }
  Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const override;
  bool background_reads() const override { return true; }

 private:
  at::Tensor inputs_;
  at::Tensor targets_;
  std::vector<std::string> channel_names_;
};

}  // namespace vit_hybrid::data
