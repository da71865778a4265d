// PackedWeight: a weight beside its copies in the forms that kernels on the host multiply by.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace vit_hybrid::kernels {

/// A weight [M, K] and copies of it, each made when first needed and made again for another version of its values.
class PackedWeight {
 public:
  /// `weight` is a contiguous view that lives on.
  explicit PackedWeight(at::Tensor weight) : weight_(std::move(weight)) {}

  const at::Tensor& weight() const { return weight_; }
  /// What blocked_forward() takes.
  const at::Tensor& forward_panels(int64_t version);
  /// What blocked_backward_input() takes.
  const at::Tensor& backward_panels(int64_t version);
  /// The weight in fp32, with copies of its own.
  PackedWeight& in_fp32(int64_t version);

 private:
  struct Copy {
    at::Tensor values;
    int64_t version = -1;
  };

  at::Tensor weight_;
  Copy forward_;
  Copy backward_;
  std::unique_ptr<PackedWeight> in_fp32_;
  int64_t fp32_version_ = -1;
};

}  // namespace vit_hybrid::kernels
