// backward_between(): a part of an autograd graph, run backwards.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

namespace vit_hybrid {

/// Computes just what lies between the edges of a graph's output and its input
/// (torch::autograd::impl::gradient_edge()), frees that graph, and returns the gradient of the input; undefined where
/// none is computed.
at::Tensor backward_between(const torch::autograd::Edge& output, at::Tensor gradient,
                            const torch::autograd::Edge& input);

}  // namespace vit_hybrid
