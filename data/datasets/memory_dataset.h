// Datasets without files: fields that are in memory, and synthetic images and fields.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/loading/tensor_pool.h"

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
  std::vector<std::string> channel_names() const override { return channel_names_; }
  Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const override;
  bool background_reads() const override { return true; }

 private:
  at::Tensor inputs_;
  at::Tensor targets_;
  std::vector<std::string> channel_names_;
};

/// Sample s is a base field of noise with mean 0 and variance 1, rolled by a number keyed by (seed, s): the same on all
/// ranks and in every epoch. There is nothing to learn in it.
class SyntheticDataset : public Dataset {
 public:
  /// Inputs are fields of `shape` [channels, height, width], targets of `out_channels` (0: as many) of them; the target
  /// is the input rolled by one more.
  static SyntheticDataset fields(int64_t size, std::vector<int64_t> shape, uint64_t seed, int64_t out_channels = 0);
  /// Inputs are of `shape`, targets class numbers below `num_classes`.
  static SyntheticDataset images(int64_t size, std::vector<int64_t> shape, int64_t num_classes, uint64_t seed);

  int64_t size() const override { return size_; }
  std::vector<int64_t> input_shape() const override { return shape_; }
  std::vector<int64_t> target_shape() const override;
  /// c00, c01, ... (or the 20 of ERA5) for fields; empty for images.
  std::vector<std::string> channel_names() const override;
  Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const override;
  bool background_reads() const override { return true; }

 private:
  SyntheticDataset(int64_t size, std::vector<int64_t> shape, int64_t out_channels, int64_t num_classes, uint64_t seed);
  bool has_classes() const { return num_classes_ > 0; }
  at::Tensor rolled(std::span<const int64_t> samples, int64_t more, int64_t channels, HostMemory memory) const;
  at::Tensor classes(std::span<const int64_t> samples, HostMemory memory) const;

  int64_t size_;
  std::vector<int64_t> shape_;
  int64_t out_channels_;
  int64_t num_classes_;  // 0: the targets are fields
  uint64_t seed_;
  std::vector<float> base_;
  std::shared_ptr<TensorPool> pool_;
};

}  // namespace vit_hybrid::data
