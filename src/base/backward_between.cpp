// One call of the autograd engine, in which nothing but the graph itself is kept or accumulated.
#include "src/base/backward_between.h"

#include <torch/csrc/autograd/engine.h>

#include <utility>

namespace vit_hybrid {

at::Tensor backward_between(const torch::autograd::Edge& output, at::Tensor gradient,
                            const torch::autograd::Edge& input) {
  return torch::autograd::Engine::get_default_engine()
      .execute({output}, {std::move(gradient)}, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/false,
               {input})
      .at(0);
}

}  // namespace vit_hybrid
