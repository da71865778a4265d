// PrecisionPolicy: the number types of a run, one value from the option --precision.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace vit_hybrid::zero {

/// Parameters and activations are of type `compute`, gradients are added up in `gradient`, reduced over ranks in
/// `reduce`, and the optimizer updates weights and moments of type `master`. Where master equals compute, the master
/// weights are the parameters themselves.
struct PrecisionPolicy {
  at::ScalarType compute = at::kFloat;
  at::ScalarType gradient = at::kFloat;
  at::ScalarType reduce = at::kFloat;
  at::ScalarType master = at::kFloat;
  bool operator==(const PrecisionPolicy&) const = default;
};

/// By name: "fp32" or "fp64". Another name is Error(kUsage); of tf32, bf16 and fp16 it says that they are not in this
/// version.
PrecisionPolicy make_precision_policy(const std::string& name);

}  // namespace vit_hybrid::zero
