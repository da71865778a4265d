// How close is equal: errors of whole tensors, as the tests of all layouts measure them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace vit_hybrid::testing {

/// max|a - reference| / max|reference|, per tensor, in double. 0 for two empty or two zero tensors; infinite for
/// another shape, for a zero reference of a tensor that is not, and where anything is not a number.
double relative_error(const at::Tensor& a, const at::Tensor& reference);

/// relative_error of a gradient (whole tensor) called `name`. The key third of a qkv.bias has an exactly zero gradient,
/// so that only rounding noise is there: its difference is measured against the query third's largest value.
double gradient_error(const std::string& name, const at::Tensor& a, const at::Tensor& reference);

/// relative_error of a parameter after `steps` optimizer steps. Adam magnifies the noise in the key third of a
/// qkv.bias: what it moved is measured against learning_rate * steps, and is an error only beyond twice that (then
/// infinite).
double parameter_error(const std::string& name, const at::Tensor& a, const at::Tensor& reference, double learning_rate,
                       int64_t steps);

}  // namespace vit_hybrid::testing
