// Adam, SGD, LARS and LAMB: in one pass over memory on the host, Adam by one kernel on a GPU, the others there by ATen.
#include "parallel/zero/rules/update_rule.h"

#include <ATen/Parallel.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sqrt.h>

#include <algorithm>
#include <array>

#include "parallel/zero/norms.h"
#include "parallel/zero/rules/device_update.h"
#include "parallel/zero/rules/step_arithmetic.h"
#include "parallel/zero/rules/update_loops.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::zero {

namespace {

// --- flat tensors of the host, chunk by chunk
// -------------------------------------------------------------------------

// Elements that a thread takes at least: 1 MiB of Adam's four arrays in fp32.
constexpr int64_t kGrain = 1 << 16;

// Elements of all arrays that are worked on before the next: they stay in the first-level cache, and so do gradients
// that are widened and weights that are cast.
constexpr int64_t kChunk = 1024;

// Asserts that the tensors belong together: one length, contiguous, the master type where it must be, `num_states` of
// state.
void check_stretch(const UpdateTensors& tensors, size_t num_states) {
  VH_ASSERT(tensors.state.size() == num_states, str(tensors.state.size(), " state tensors for ", num_states));
  const at::ScalarType master = tensors.weights.scalar_type();
  std::vector<at::Tensor> all = tensors.state;
  all.push_back(tensors.weights);
  for (const at::Tensor& tensor : all) {
    VH_ASSERT(tensor.scalar_type() == master, str("a state of type ", c10::toString(tensor.scalar_type())));
  }
  all.push_back(tensors.gradients);
  if (tensors.parameters.defined()) {
    all.push_back(tensors.parameters);
  }
  for (const at::Tensor& tensor : all) {
    VH_ASSERT(tensor.numel() == tensors.weights.numel() && tensor.is_contiguous(),
              str(tensor.numel(), " elements for ", tensors.weights.numel(), " weights"));
  }
}

// Calls `use(T())` with T the type of the weights, float or double.
template <class Use>
void with_type(const UpdateTensors& tensors, const Use& use) {
  if (tensors.weights.scalar_type() == at::kFloat) {
    use(float());
  } else {
    use(double());
  }
}

// `count` values from `begin` on in the master type: where they are, or widened into `buffer`.
template <class T>
const T* widened(const at::Tensor& values, int64_t begin, int64_t count, T* buffer) {
  if (values.scalar_type() == c10::CppTypeToScalarType<T>::value) {
    return values.const_data_ptr<T>() + begin;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (values.scalar_type() == at::kBFloat16) {
      kernels::convert(values.const_data_ptr<c10::BFloat16>() + begin, buffer, count);
    } else {
      kernels::convert(values.const_data_ptr<c10::Half>() + begin, buffer, count);
    }
  }
  return buffer;
}

// Casts `weights` into `count` elements from `begin` on; nothing where `parameters` is undefined, as those of a double
// master are: they are themselves the master.
template <class T>
void cast_into(const at::Tensor& parameters, int64_t begin, int64_t count, const T* weights) {
  if (!parameters.defined()) {
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (parameters.scalar_type() == at::kBFloat16) {
      kernels::convert(weights, parameters.mutable_data_ptr<c10::BFloat16>() + begin, count);
    } else {
      kernels::convert(weights, parameters.mutable_data_ptr<c10::Half>() + begin, count);
    }
  } else {
    VH_ASSERT(false, "parameters of a double master are themselves the master");
  }
}

// Calls `update(begin, count, gradients)` for chunks of the stretch, with their gradients in the type T, and then casts
// the new weights into the parameters. On all threads.
template <class T, class Update>
void update_stretch(const UpdateTensors& tensors, const Update& update) {
  const T* const weights = tensors.weights.const_data_ptr<T>();
  at::parallel_for(0, tensors.weights.numel(), kGrain, [&](int64_t begin, int64_t end) {
    std::array<T, kChunk> buffer;
    for (int64_t first = begin; first < end; first += kChunk) {
      const int64_t count = std::min(kChunk, end - first);
      update(first, count, widened(tensors.gradients, first, count, buffer.data()));
      cast_into(tensors.parameters, first, count, weights + first);
    }
  });
}

// Casts the weights into the parameters; nothing where the weights are the parameters.
void cast_parameters(const UpdateTensors& tensors) {
  if (tensors.parameters.defined()) {
    tensors.parameters.copy_(tensors.weights);
  }
}

// --- Adam
// -------------------------------------------------------------------------------------------------------------

// As torch.optim.Adam, which adds weight decay to the gradient, or AdamW, which takes it from the weights (without
// amsgrad): D. P. Kingma and J. Ba, "Adam", ICLR 2015, algorithm 1; I. Loshchilov and F. Hutter, ICLR 2019,
// algorithm 2. On a GPU it updates all that a rank owns by one kernel.
class AdamRule final : public UpdateRule {
 public:
  AdamRule(const OptimizerOptions& options, bool on_host) : options_(options), on_host_(on_host) {}

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool updates_at_once() const override { return !on_host_; }

  void apply_to_owned(const OwnedTensors& owned, const at::Tensor& step) const override {
    adam_step_cuda(owned, step, options_);
  }

  void apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
             double /*trust*/) const override {
    VH_ASSERT(on_host_, "on a GPU all is updated at once");
    check_stretch(tensors, 2);
    with_type(tensors, [&](auto zero) {
      using T = decltype(zero);
      const auto constants = adam_constants<T>(options_);
      auto c = adam_coefficients(constants, step);
      set_weight_decay(c, adam_decay(constants, step), weight_decay);
      T* const weights = tensors.weights.data_ptr<T>();
      T* const exp_avg = tensors.state[0].data_ptr<T>();
      T* const exp_avg_sq = tensors.state[1].data_ptr<T>();
      update_stretch<T>(tensors, [&](int64_t begin, int64_t count, const T* gradients) {
        adam_loop(weights + begin, exp_avg + begin, exp_avg_sq + begin, gradients, count, c);
      });
    });
  }

 private:
  OptimizerOptions options_;
  bool on_host_;
};

// --- SGD and LARS
// -----------------------------------------------------------------------------------------------------

template <class T>
MomentumCoefficients<T> momentum_coefficients(const OptimizerOptions& options, const StepScalars& step,
                                              double weight_decay, double trust) {
  MomentumCoefficients<T> c{};
  c.gradient_scale = static_cast<T>(step.gradient_scale);
  c.weight_decay = static_cast<T>(weight_decay);
  c.trust = static_cast<T>(trust);
  c.momentum = static_cast<T>(options.momentum);
  c.from_gradient = static_cast<T>(options.nesterov ? 1.0 : 0.0);
  c.from_buffer = static_cast<T>(options.nesterov ? options.momentum : 1.0);
  c.lr = static_cast<T>(step.lr);
  return c;
}

void momentum_update_by_aten(const UpdateTensors& tensors, const MomentumCoefficients<double>& c) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor gradients = tensors.gradients.to(tensors.weights.scalar_type())
                                   .mul(c.gradient_scale)
                                   .add_(tensors.weights, c.weight_decay)
                                   .mul_(c.trust);
  if (tensors.state.empty()) {
    tensors.weights.add_(gradients, -c.lr);
  } else {
    const at::Tensor& buffer = tensors.state[0];
    buffer.mul_(c.momentum).add_(gradients);
    tensors.weights.add_(gradients.mul_(c.from_gradient).add_(buffer, c.from_buffer), -c.lr);
  }
  cast_parameters(tensors);
}

template <class T>
void momentum_update_on_host(const UpdateTensors& tensors, const MomentumCoefficients<T>& c) {
  T* const weights = tensors.weights.data_ptr<T>();
  T* const buffer = tensors.state.empty() ? nullptr : tensors.state[0].data_ptr<T>();
  update_stretch<T>(tensors, [&](int64_t begin, int64_t count, const T* gradients) {
    if (buffer == nullptr) {
      plain_loop(weights + begin, gradients, count, c);
    } else {
      momentum_loop(weights + begin, buffer + begin, gradients, count, c);
    }
  });
}

// As torch.optim.SGD without dampening. With g the gradient plus weight_decay times the weights:
//   buffer <- momentum buffer + g;  w <- w - lr (buffer, or g + momentum buffer with Nesterov's momentum).
// Momentum 0 keeps no state.
class SgdRule : public UpdateRule {
 public:
  SgdRule(const OptimizerOptions& options, bool on_host) : options_(options), on_host_(on_host) {}

  std::vector<std::string> state_names() const override {
    return options_.momentum == 0.0 ? std::vector<std::string>() : std::vector<std::string>{"momentum_buffer"};
  }

  void apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const override {
    check_stretch(tensors, options_.momentum == 0.0 ? 0 : 1);
    if (!on_host_) {
      momentum_update_by_aten(tensors, momentum_coefficients<double>(options_, step, weight_decay, trust));
      return;
    }
    with_type(tensors, [&](auto zero) {
      momentum_update_on_host(tensors, momentum_coefficients<decltype(zero)>(options_, step, weight_decay, trust));
    });
  }

 protected:
  OptimizerOptions options_;

 private:
  bool on_host_;
};

// Y. You, I. Gitman and B. Ginsburg, "Large batch training of convolutional networks", arXiv:1708.03888, algorithm 1:
//   g <- trust (gradient + weight_decay w),  trust = trust_coefficient |w| / (|gradient| + weight_decay |w|),
// and 1 where |w| or |gradient| is 0; then SGD's momentum on g. As in timm and apex, and unlike the paper, the learning
// rate stays out of the buffer, so that a schedule acts at once. Gradients are those after clipping. Vectors (biases,
// norms, positions) are neither scaled nor decayed, unless decay_vectors says that they are treated as matrices.
class LarsRule final : public SgdRule {
 public:
  using SgdRule::SgdRule;

  bool is_layerwise() const override { return true; }

  void prepare(const UpdateTensors& tensors, const StepScalars& step, double /*weight_decay*/,
               const at::Tensor& sums) const override {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    sums.select(0, 0).add_(sum_of_squares_there(tensors.weights));
    sums.select(0, 1).add_(sum_of_squares_there(tensors.gradients), step.gradient_scale * step.gradient_scale);
  }

  double trust_ratio(double weight_norm, double update_norm, double weight_decay) const override {
    const bool is_scaled = weight_norm > 0.0 && update_norm > 0.0;
    return is_scaled ? options_.trust_coefficient * weight_norm / (update_norm + weight_decay * weight_norm) : 1.0;
  }
};

// --- LAMB
// -------------------------------------------------------------------------------------------------------------

template <class T>
LambCoefficients<T> lamb_coefficients(const OptimizerOptions& options, const StepScalars& step, double weight_decay,
                                      double trust) {
  LambCoefficients<T> c{};
  set_betas(c, options);
  set_moments_of_step(c, step);
  c.mean_scale = static_cast<T>(step.mean_scale);
  c.weight_decay = static_cast<T>(weight_decay);
  c.step_size = static_cast<T>(step.lr * trust);
  return c;
}

at::Tensor lamb_update_by_aten(const UpdateTensors& tensors, const LambCoefficients<double>& c) {
  const at::Tensor denominators = tensors.state[1].sqrt().mul_(c.root_scale).add_(c.eps);
  return tensors.state[0].mul(c.mean_scale).div_(denominators).add_(tensors.weights, c.weight_decay);
}

void lamb_prepare_by_aten(const UpdateTensors& tensors, const LambCoefficients<double>& c, const at::Tensor& sums) {
  const at::Tensor gradients = tensors.gradients.to(tensors.weights.scalar_type()).mul(c.gradient_scale);
  tensors.state[0].mul_(c.beta1).add_(gradients, c.one_minus_beta1);
  tensors.state[1].mul_(c.beta2).addcmul_(gradients, gradients, c.one_minus_beta2);
  sums.select(0, 0).add_(sum_of_squares_there(tensors.weights));
  sums.select(0, 1).add_(sum_of_squares_there(lamb_update_by_aten(tensors, c)));
}

template <class T>
SquareSums lamb_prepare_on_host(const UpdateTensors& tensors, const LambCoefficients<T>& c) {
  const T* const weights = tensors.weights.const_data_ptr<T>();
  T* const exp_avg = tensors.state[0].data_ptr<T>();
  T* const exp_avg_sq = tensors.state[1].data_ptr<T>();
  return sum_over_blocks<SquareSums>(tensors.weights.numel(), [&](int64_t begin, int64_t count) {
    SquareSums sums;
    std::array<T, kChunk> buffer;
    for (int64_t i = begin; i < begin + count; i += kChunk) {
      const int64_t size = std::min(kChunk, begin + count - i);
      const T* const gradients = widened(tensors.gradients, i, size, buffer.data());
      sums += lamb_prepare_loop(weights + i, exp_avg + i, exp_avg_sq + i, gradients, size, c);
    }
    return sums;
  });
}

template <class T>
void lamb_apply_on_host(const UpdateTensors& tensors, const LambCoefficients<T>& c) {
  T* const weights = tensors.weights.data_ptr<T>();
  const T* const exp_avg = tensors.state[0].const_data_ptr<T>();
  const T* const exp_avg_sq = tensors.state[1].const_data_ptr<T>();
  update_stretch<T>(tensors, [&](int64_t begin, int64_t count, const T* /*gradients*/) {
    lamb_apply_loop(weights + begin, exp_avg + begin, exp_avg_sq + begin, count, c);
  });
}

// Y. You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", ICLR 2020,
// arXiv:1904.00962, algorithm 2, with phi(z) = z and without bounds:
//   u = m^ / (sqrt(v^) + eps) + weight_decay w;  w <- w - lr trust u,  trust = |w| / |u|,
// and 1 where |w| or |u| is 0; m^ and v^ are Adam's moments with bias correction. Norms are those of the whole
// parameter (q, k and v are one). So far as timm and apex; they also clip the gradient to norm 1 unless told otherwise
// (here: clip_norm), and scale just what decays. Here the steps of all matrices are scaled, whether weight_decay is 0
// or not; vectors (biases, norms, positions) are neither scaled nor decayed, unless decay_vectors says that they are
// treated as matrices.
class LambRule final : public UpdateRule {
 public:
  LambRule(const OptimizerOptions& options, bool on_host) : options_(options), on_host_(on_host) {}

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool is_layerwise() const override { return true; }

  // Updates the moments.
  void prepare(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
               const at::Tensor& sums) const override {
    check_stretch(tensors, 2);
    if (!on_host_) {
      const MemoryScope scope(MemoryClass::kWorkspaces);
      lamb_prepare_by_aten(tensors, lamb_coefficients<double>(options_, step, weight_decay, 1.0), sums);
      return;
    }
    with_type(tensors, [&](auto zero) {
      const auto c = lamb_coefficients<decltype(zero)>(options_, step, weight_decay, 1.0);
      const SquareSums added = lamb_prepare_on_host(tensors, c);
      auto* const of_parameter = sums.data_ptr<double>();
      of_parameter[0] += added.weights;
      of_parameter[1] += added.update;
    });
  }

  double trust_ratio(double weight_norm, double update_norm, double /*weight_decay*/) const override {
    return weight_norm > 0.0 && update_norm > 0.0 ? weight_norm / update_norm : 1.0;
  }

  // Updates the weights from the moments, with the update computed anew: it is nowhere kept.
  void apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const override {
    check_stretch(tensors, 2);
    if (!on_host_) {
      const MemoryScope scope(MemoryClass::kWorkspaces);
      const auto c = lamb_coefficients<double>(options_, step, weight_decay, trust);
      tensors.weights.add_(lamb_update_by_aten(tensors, c), -c.step_size);
      cast_parameters(tensors);
      return;
    }
    with_type(tensors, [&](auto zero) {
      lamb_apply_on_host(tensors, lamb_coefficients<decltype(zero)>(options_, step, weight_decay, trust));
    });
  }

 private:
  OptimizerOptions options_;
  bool on_host_;
};

}  // namespace

// --- what rules inherit, and which there are
// --------------------------------------------------------------------------

void UpdateRule::prepare(const UpdateTensors& /*tensors*/, const StepScalars& /*step*/, double /*weight_decay*/,
                         const at::Tensor& /*sums*/) const {
  VH_ASSERT(false, "this rule has one pass");
}

double UpdateRule::trust_ratio(double /*weight_norm*/, double /*update_norm*/, double /*weight_decay*/) const {
  return 1.0;
}

void UpdateRule::apply_to_owned(const OwnedTensors& /*owned*/, const at::Tensor& /*step*/) const {
  VH_ASSERT(false, "this rule updates stretch by stretch");
}

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options, at::DeviceType device) {
  const bool on_host = device == at::kCPU;
  switch (options.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return std::make_unique<AdamRule>(options, on_host);
    case OptimizerKind::kSgd:
      return std::make_unique<SgdRule>(options, on_host);
    case OptimizerKind::kLamb:
      return std::make_unique<LambRule>(options, on_host);
    case OptimizerKind::kLars:
      return std::make_unique<LarsRule>(options, on_host);
  }
  VH_ASSERT(false, "no such optimizer");
}

std::vector<std::string> optimizer_state_names(const OptimizerOptions& options) {
  return make_update_rule(options, at::kCPU)->state_names();
}

}  // namespace vit_hybrid::zero
