// Bandwidth of the own device kernels in per cent of a copy's, measured in the same run with events of the device.
//
//   bench_gpu_kernels [ROUNDS]
//
// Each line: the kernel, GB/s of the bytes that it has to move, and per cent of the bandwidth of a large copy. The
// median of ROUNDS (7) measurements; the arrays are many times larger than the device's caches.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "data/loading/normalize.h"
#include "model/vit_parameters.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"
#include "parallel/zero/norms.h"
#include "parallel/zero/zero1_optimizer.h"
#include "src/base/text.h"
#include "src/kernels/dropout.h"
#include "src/kernels/field_error.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/layer_norm.h"
#include "tests/bench/gpu_line.h"

namespace {

using namespace vit_hybrid;

constexpr int kSkipped = 77;
constexpr int kCallsOfRound = 10;
constexpr int64_t kBucketElements = int64_t{25} << 18;  // 25 MiB of fp32, as --bucket-mb auto has it

at::TensorOptions on_gpu(at::ScalarType type) {
  return at::TensorOptions(type).device(c10::Device(c10::kCUDA, 0));
}

at::Tensor normals(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, on_gpu(at::kFloat)).to(type);
}

class Bench {
 public:
  explicit Bench(int rounds) : rounds_(rounds), guard_(c10::DeviceType::CUDA) {
    const at::Tensor from = at::ones({int64_t{1} << 28}, on_gpu(at::kFloat));
    const at::Tensor to = at::empty_like(from);
    kernels::device_microseconds([&] { to.copy_(from); });  // its first call wakes the GPU
    copy_ = bytes_per_second([&] { to.copy_(from); }, 2.0 * static_cast<double>(from.nbytes()));
    std::printf("%-58s %7.0f GB/s\n", "copy", copy_ * 1e-9);
  }

  // `bytes`: what one call has to read and write.
  template <class Call>
  void line(const std::string& name, double bytes, const Call& call) {
    bench::attempt(name, [&] {
      const double rate = bytes_per_second(call, bytes);
      std::printf("%-58s %7.0f GB/s  %5.1f %%\n", name.c_str(), rate * 1e-9, 100.0 * rate / copy_);
      std::fflush(stdout);
    });
  }

 private:
  template <class Call>
  double bytes_per_second(const Call& call, double bytes) {
    std::vector<double> seconds;
    for (int round = 0; round <= rounds_; ++round) {
      c10::Event begin(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT);
      c10::Event end(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT);
      begin.record(guard_.getStream(guard_.getDevice()));
      for (int i = 0; i < kCallsOfRound; ++i) {
        call();
      }
      end.record(guard_.getStream(guard_.getDevice()));
      end.synchronize();
      if (round > 0) {  // the first one loads the kernels and fills the allocator
        seconds.push_back(begin.elapsedTime(end) * 1e-3 / kCallsOfRound);
      }
    }
    std::nth_element(seconds.begin(), seconds.begin() + rounds_ / 2, seconds.end());
    return bytes / seconds[static_cast<size_t>(rounds_ / 2)];
  }

  int rounds_;
  c10::impl::VirtualGuardImpl guard_;
  double copy_ = 0.0;
};

void bench_norms(Bench& bench, at::ScalarType type, int64_t features) {
  const int64_t rows = (int64_t{1} << 27) / features;
  const std::string what = str(" ", c10::toString(type), " D ", features);
  const at::Tensor x = normals({1, rows, features}, type), branch = normals({1, rows, features}, type);
  const at::Tensor weight = normals({features}, type), bias = normals({features}, type);
  const at::Tensor gradients = at::zeros({3, features}, on_gpu(at::kFloat));
  const auto bytes = static_cast<double>(x.nbytes());
  const kernels::Normed normed = kernels::device_layer_norm(x, weight, bias, 1e-6);
  const kernels::NormInput input{x, normed.mean, normed.rstd};
  const kernels::NormGradients sums{gradients[0], gradients[1]}, three_sums{gradients[0], gradients[1], gradients[2]};
  bench.line("LayerNorm forward" + what, 2 * bytes,
             [&] { static_cast<void>(kernels::device_layer_norm(x, weight, bias, 1e-6)); });
  bench.line("residual + LayerNorm forward" + what, 4 * bytes,
             [&] { static_cast<void>(kernels::device_residual_layer_norm(x, branch, {}, weight, bias, 1e-6)); });
  bench.line("residual sum" + what, 3 * bytes, [&] { static_cast<void>(kernels::device_residual_sum(x, branch, {})); });
  bench.line("LayerNorm backward" + what, 3 * bytes,
             [&] { static_cast<void>(kernels::device_layer_norm_backward(normed.y, input, weight, {}, sums)); });
  bench.line("LayerNorm backward + residual gradient" + what, 4 * bytes,
             [&] { static_cast<void>(kernels::device_layer_norm_backward(normed.y, input, weight, branch, sums)); });
  bench.line("LayerNorm backward + residual and bias gradient" + what, 4 * bytes, [&] {
    static_cast<void>(kernels::device_layer_norm_backward(normed.y, input, weight, branch, three_sums));
  });
}

// A rank's step as a training of one rank has it: all parameters of a ViT-B/16, matrices and vectors in turn.
void bench_optimizer(Bench& bench, const zero::PrecisionPolicy& precision) {
  const auto model = model::preset("vit-b16");
  const auto specs = model::parameter_specs(model, {0, model.num_units()}, 0, 0, 1);
  tensor::ParameterBuffer buffer(specs, tensor::make_flat_layout(specs, kBucketElements, 1), precision.compute,
                                 precision.gradient, c10::Device(c10::kCUDA, 0));
  comm::SelfCommunicator data("data", c10::DeviceType::CUDA), tensor("tensor", c10::DeviceType::CUDA);
  zero::OptimizerOptions options;
  options.kind = zero::OptimizerKind::kAdamW;
  options.weight_decay = 0.1;
  zero::Zero1Optimizer optimizer(buffer, {&data, nullptr}, tensor, precision, options);
  zero::StepControl control(buffer.values().device());
  control.set(optimizer.next_step(1e-4));
  buffer.values().normal_(0.0, 0.02);
  buffer.gradients().normal_();
  // Read: gradient, master weight and moments; written: master weight, moments and a parameter that is cast from it.
  const auto bytes_each =
      static_cast<double>(6 * c10::elementSize(precision.master) + c10::elementSize(precision.gradient) +
                          (precision.has_own_master() ? c10::elementSize(precision.compute) : 0));
  const std::string what = str(" of ViT-B/16, gradient ", c10::toString(precision.gradient));
  bench.line(str("AdamW", what, ", parameter ", c10::toString(precision.compute)),
             static_cast<double>(buffer.layout().size) * bytes_each, [&] { optimizer.update(control); });
  bench.line(str("sum of squares", what), static_cast<double>(buffer.gradients().nbytes()),
             [&] { static_cast<void>(zero::sum_of_squares_there(buffer.gradients())); });
}

void bench_fields(Bench& bench, at::ScalarType type) {
  const kernels::PatchGrid grid{720, 1440, 8, 8, 20};
  const at::Tensor patches = normals({8, grid.num_patches(), grid.num_features()}, type);
  const at::Tensor fields = normals({8, grid.channels, grid.height, grid.width}, at::kFloat);
  const at::Tensor factors = at::ones({8}, on_gpu(at::kDouble));
  const auto read = static_cast<double>(patches.nbytes() + fields.nbytes());
  const std::string what = str(" ", c10::toString(type));
  bench.line("field error forward" + what, read,
             [&] { static_cast<void>(kernels::device_field_sums(patches, fields, grid, {})); });
  bench.line("field error backward" + what, read + static_cast<double>(patches.nbytes()),
             [&] { static_cast<void>(kernels::device_field_gradient(patches, fields, grid, factors, {})); });
}

void bench_input(Bench& bench, at::ScalarType type) {
  const at::Tensor fields = normals({8, 20, 720, 1440}, at::kFloat);
  const at::Tensor mean = at::zeros({20}, on_gpu(at::kFloat)), std = at::ones({20}, on_gpu(at::kFloat));
  const at::Tensor images = at::randint(0, 256, {512, 224, 224, 3}, on_gpu(at::kByte));
  const auto size = static_cast<double>(c10::elementSize(type));
  bench.line(str("normalize fields to ", c10::toString(type)), static_cast<double>(fields.numel()) * (4.0 + size),
             [&] { static_cast<void>(data::normalize_batch(fields, mean, std, type)); });
  bench.line(str("normalize images to ", c10::toString(type)), static_cast<double>(images.numel()) * (1.0 + size), [&] {
    static_cast<void>(data::normalize_batch(images, mean.narrow(0, 0, 3), std.narrow(0, 0, 3), type));
  });
}

void bench_dropout(Bench& bench, at::ScalarType type) {
  tensor::StepContext context;
  context.mode = Mode::kTraining;
  for (int64_t n = 0; n < 128; ++n) {
    context.samples.push_back(n);
  }
  const kernels::KeyedDrop drop({0.1, 1, kernels::DropSite::kHidden}, Purpose::kDropout, context);
  const at::Tensor x = normals({128, 197, 4096}, type);
  bench.line(str("dropout ", c10::toString(type)), 2.0 * static_cast<double>(x.nbytes()), [&] {
    static_cast<void>(kernels::device_dropout(x, drop, {{0, 4096}, 4096}));
  });
  const kernels::AttentionMaskKey mask{drop.stream, drop.threshold, context.samples, 0, 16, 197};
  bench.line("attention mask (bytes)", 128.0 * 16 * 197 * 197, [&] {
    static_cast<void>(kernels::device_attention_mask(mask, {0, 197}, {0, 197}, x.device()));
  });
}

int bench_all(int rounds) {
  Bench bench(rounds);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const std::string in = str(" in ", c10::toString(type));
    for (const int64_t features : {384, 768, 1024, 1280, 2048}) {
      bench::attempt("norms" + in, [&] { bench_norms(bench, type, features); });
    }
    bench::attempt("field errors" + in, [&] { bench_fields(bench, type); });
    bench::attempt("input" + in, [&] { bench_input(bench, type); });
    bench::attempt("dropout" + in, [&] { bench_dropout(bench, type); });
  }
  for (const char* name : {"fp32", "bf16", "fp16"}) {
    zero::PrecisionPolicy precision = zero::make_precision_policy(name);
    const auto optimizer = [&] { bench_optimizer(bench, precision); };
    bench::attempt(str("optimizer in ", name), optimizer);
    if (precision.has_own_master()) {
      precision.gradient = precision.compute;
      bench::attempt(str("optimizer in ", name, ", half gradients"), optimizer);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (!at::hasCUDA()) {
    std::printf("[skipped] no GPU on this machine, or a program built without VIT_HYBRID_ENABLE_CUDA\n");
    return kSkipped;
  }
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  return bench::run([&] { return bench_all(rounds); });
}
