// PrecisionPolicy: the number types of a run, one value from the option --precision.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "src/base/error.h"
#include "src/base/text.h"

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
inline PrecisionPolicy make_precision_policy(const std::string& name) {
  if (name == "fp32" || name == "tf32") {
    return {at::kFloat, at::kFloat, at::kFloat, at::kFloat};
  }
  if (name == "fp64") {
    return {at::kDouble, at::kDouble, at::kDouble, at::kDouble};
  }
  if (name == "bf16" || name == "fp16") {
    return {name == "bf16" ? at::kBFloat16 : at::kHalf, at::kFloat, at::kFloat, at::kFloat};
  }
  throw Error(ErrorClass::kUsage, str("precision '", name, "' is unknown; allowed: fp32, fp64, tf32, bf16, fp16"));
}

}  // namespace vit_hybrid::zero
