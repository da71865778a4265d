// record(): puts an operation with hand-written backward on the autograd graph, as one node; backward_between(): runs a
// part of such a graph backwards; and the work that is done between operations, or beside them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/edge.h>

#include <atomic>
#include <functional>
#include <vector>

namespace vit_hybrid {

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

/// Computes just what lies between the edges of a graph's output and its input
/// (torch::autograd::impl::gradient_edge()), frees that graph, and returns the gradient of the input; undefined where
/// none is computed.
at::Tensor backward_between(const torch::autograd::Edge& output, at::Tensor gradient,
                            const torch::autograd::Edge& input);

namespace detail {
inline std::atomic<void (*)()> background_work{nullptr};
inline std::atomic<void (*)(bool begins)> long_work{nullptr};
}  // namespace detail

/// `work` is called by do_background_work() from now on: whoever has some to do registers it once. Messages between
/// hosts move in no other way than by calls between the operations of a model, and beside LongWork.
inline void set_background_work(void (*work)()) {
  detail::background_work = work;
}

/// Does what there is to do, and does not wait. To be called once a layer, by the main thread.
inline void do_background_work() {
  if (void (*const work)() = detail::background_work.load(std::memory_order_relaxed)) {
    work();
  }
}

/// While it lives its thread computes, for long enough that another may do background work meanwhile
/// (comm::MessageThread), and does none itself. Kernels make one around their loops; they may lie within each other.
class LongWork {
 public:
  LongWork() { tell(true); }
  ~LongWork() { tell(false); }
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

  /// Who is told of the begin and the end of each, by the thread that computes; null: nobody.
  static void set_listener(void (*listener)(bool begins)) { detail::long_work = listener; }

 private:
  static void tell(bool begins) {
    if (void (*const listener)(bool) = detail::long_work.load(std::memory_order_relaxed)) {
      listener(begins);
    }
  }
};

}  // namespace vit_hybrid
