// Precision policies by name.
#include "parallel/zero/precision_policy.h"

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

PrecisionPolicy make_precision_policy(const std::string& name) {
  if (name == "fp32") {
    return {at::kFloat, at::kFloat, at::kFloat, at::kFloat};
  }
  if (name == "fp64") {
    return {at::kDouble, at::kDouble, at::kDouble, at::kDouble};
  }
  const bool is_planned = name == "tf32" || name == "bf16" || name == "fp16";
  throw Error(ErrorClass::kUsage, str("precision '", name, "' is ", is_planned ? "not in this version" : "unknown",
                                      "; allowed: fp32, fp64"));
}

}  // namespace vit_hybrid::zero
