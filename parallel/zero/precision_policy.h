// PrecisionPolicy: the number types of a run, one value from the option --precision.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace vit_hybrid::zero {

/// Parameters and activations are of type `compute`, gradients are added up in `gradient`, reduced over ranks in
/// `reduce`, and the optimizer updates weights and moments of type `master`. Where master equals compute, the master
/// weights are the parameters themselves; else the parameters are cast from them (P. Micikevicius et al., "Mixed
/// precision training", ICLR 2018, section 3.1).
struct PrecisionPolicy {
  at::ScalarType compute = at::kFloat;
  at::ScalarType gradient = at::kFloat;
  at::ScalarType reduce = at::kFloat;
  at::ScalarType master = at::kFloat;
  bool operator==(const PrecisionPolicy&) const = default;

  bool has_own_master() const { return master != compute; }
};

/// By name: "fp32", "tf32" (the same types), "fp64", "bf16" or "fp16", with gradients added up and reduced in the
/// master type. Another name is Error(kUsage).
PrecisionPolicy make_precision_policy(const std::string& name);

}  // namespace vit_hybrid::zero
