// record(): puts an operation with hand-written backward on the autograd graph, as one node.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <functional>
#include <vector>

namespace vit_hybrid::kernels {

/// Given the gradient of an output, returns the gradients of the inputs in their order (undefined: none is computed).
/// Runs once, without grad mode; what it captures is freed right after it ran.
using Backward = std::function<std::vector<at::Tensor>(const at::Tensor& gradient)>;

/// The same for several outputs, whose gradients come in their order; one that nothing was computed from is undefined.
using JointBackward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& gradients)>;

/// Runs `compute` without grad mode: the forward of an operation that record() puts on the graph.
template <class Compute>
auto without_grad(Compute compute) {
  const at::NoGradGuard guard;
  return compute();
}

/// True if an operation on these inputs must be recorded: grad mode is on and one of them requires grad.
bool records(const std::vector<at::Tensor>& inputs);

/// The values of `output`, computed without grad mode from `inputs`, as a tensor on the graph whose backward is
/// `backward`; just `output` where nothing has to be recorded. `backward` must capture neither the result nor an unused
/// tensor: both would stay in memory. `name` appears in profiles.
at::Tensor record(const char* name, const at::Tensor& output, const std::vector<at::Tensor>& inputs, Backward backward);

/// The same for an operation with several outputs: one node, whose backward runs when all gradients are there.
std::vector<at::Tensor> record_jointly(const char* name, const std::vector<at::Tensor>& outputs,
                                       const std::vector<at::Tensor>& inputs, JointBackward backward);

}  // namespace vit_hybrid::kernels
