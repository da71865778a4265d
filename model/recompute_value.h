// recompute_in_backward(): gives the memory of one activation back between its use in forward and in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace vit_hybrid::model {

/// `result`, which was computed from `value` by a node that keeps `value` (whole, not a view). When it is recorded, the
/// memory of `value` is freed, for every tensor that shares it, and nobody may read it; when backward reaches the
/// result, and before it reaches that node, it is filled again with what `compute` returns, which must be the same
/// values. `compute` runs without grad mode, and must not communicate.
at::Tensor recompute_in_backward(const at::Tensor& value, const at::Tensor& result,
                                 std::function<at::Tensor()> compute);

}  // namespace vit_hybrid::model
