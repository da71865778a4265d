// Checking, summing up and telling of a checkpoint's tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/format.h"

namespace vit_hybrid::train {

/// "file: dataset 'parameters/...'", for messages.
std::string place_of(const CheckpointReader& checkpoint, const CheckpointTensor& tensor);

/// Reads every tensor and compares its checksum. Error(kBadData) names the first whose checksum is another.
void verify_checkpoint(const CheckpointReader& checkpoint);

/// The checksum of a whole tensor (host).
std::string checksum_text(const at::Tensor& values);

/// Reads one tensor, checksum compared.
at::Tensor read_verified(const CheckpointReader& checkpoint, const CheckpointTensor& tensor);

/// Of the finite values (0 without any); the mean and deviation are of double precision.
struct TensorSummary {
  int64_t count = 0;
  int64_t num_not_finite = 0;
  double least = 0.0;
  double most = 0.0;
  double mean = 0.0;
  double deviation = 0.0;
};

/// Of a contiguous host tensor of float32 or float64.
TensorSummary summarize(const at::Tensor& values);

/// How two tensors of one shape differ. Values are equal if their bits are, in float64 where the types differ.
struct TensorDifference {
  int64_t count = 0;
  int64_t num_different = 0;
  int64_t first_index = -1;  ///< of the first value that differs, row-major; -1 without one
  double first_a = 0.0;
  double first_b = 0.0;
  double largest_absolute = 0.0;  ///< of |a - b|; infinite where one of the two is not finite
  double largest_relative = 0.0;  ///< of |a - b| / max(|a|, |b|)
};

/// Of two contiguous host tensors of float32 or float64.
TensorDifference difference_of(const at::Tensor& a, const at::Tensor& b);

/// "precision   fp16" and "loss scale  fixed 1e+12, 3 steps skipped"; nothing of what the checkpoint does not know (an
/// import has no run) or did not need. Pure.
std::vector<std::string> precision_lines(const CheckpointInfo& info);

/// Parameters first, and numbers in names by their value.
std::vector<CheckpointTensor> in_reading_order(std::vector<CheckpointTensor> tensors);

/// Whether it is a parameter, no moment.
bool is_parameter(const CheckpointTensor& tensor);

}  // namespace vit_hybrid::train
