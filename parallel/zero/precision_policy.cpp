// Precision policies by name.
#include "parallel/zero/precision_policy.h"

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

PrecisionPolicy make_precision_policy(const std::string& name) {
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
