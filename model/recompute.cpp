// RecomputedUnit: the autograd node that runs a unit again, and the inner call of the autograd engine.
#include "model/recompute.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Storage.h>
#include <torch/csrc/autograd/variable.h>

#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

namespace {

ResidualStream run(const Layers& layers, ResidualStream stream, const tensor::StepContext& context) {
  for (const auto& layer : layers) {
    stream = layer->forward(std::move(stream), context);
  }
  return stream;
}

// Under grad mode, from an input that the outer graph does not know.
at::Tensor run_recorded(const Layers& layers, const at::Tensor& input, const tensor::StepContext& context) {
  return run(layers, {input.set_requires_grad(true)}, context).sum(context);
}

// The gradient of the input. The engine is entered once more from inside a node: it then works on in this thread (on
// devices in theirs), on the stream of this node.
at::Tensor backward_through(const Layers& layers, const at::Tensor& x, const tensor::StepContext& context,
                            const at::Tensor& dy) {
  const MemoryScope scope(MemoryClass::kActivations);
  const at::AutoGradMode grad_mode(true);
  const at::Tensor input = x.detach();
  const auto output_edge = torch::autograd::impl::gradient_edge(run_recorded(layers, input, context));
  const auto input_edge = torch::autograd::impl::gradient_edge(input);
  return backward_between(output_edge, dy, input_edge);
}

at::DataPtr take_memory(const c10::Storage& storage) {
  return storage.set_data_ptr(at::DataPtr(nullptr, storage.device()));
}

void fill(const c10::Storage& storage, const at::Tensor& again) {
  VH_ASSERT(again.storage_offset() == 0 && again.storage().nbytes() == storage.nbytes(),
            str(again.storage().nbytes(), " bytes computed again for ", storage.nbytes()));
  storage.set_data_ptr_noswap(take_memory(again.storage()));
}

}  // namespace

ResidualStream RecomputedUnit::forward(ResidualStream stream, const tensor::StepContext& context) {
  if (!records({stream.x})) {
    return run(layers_, std::move(stream), context);
  }
  const at::Tensor x = std::move(stream).sum(context);
  // Under grad mode too, for the kernels, and so the bits, to be those of a unit that keeps all; the graph goes at
  // once.
  const at::Tensor y = run_recorded(layers_, x.detach(), context).detach();
  const auto backward = [this, x = x.detach(), &context](const at::Tensor& dy) {
    return std::vector<at::Tensor>{backward_through(layers_, x, context, dy)};
  };
  return {record("RecomputedUnit", y, {x}, backward)};
}

at::Tensor recompute_in_backward(const at::Tensor& value, const at::Tensor& result,
                                 std::function<at::Tensor()> compute) {
  if (value.numel() == 0 || !records({result})) {
    return result;
  }
  VH_ASSERT(value.storage_offset() == 0 && value.nbytes() == value.storage().nbytes(), "a view cannot be given back");
  const c10::Storage& storage = value.storage();
  VH_ASSERT(!result.is_alias_of(value), "the result is a view of what would be given back");
  static_cast<void>(take_memory(storage));
  return record("recompute", result, {result}, [storage, compute = std::move(compute)](const at::Tensor& dy) {
    const MemoryScope scope(MemoryClass::kActivations);
    fill(storage, compute());
    return std::vector<at::Tensor>{dy};
  });
}

}  // namespace vit_hybrid::model
