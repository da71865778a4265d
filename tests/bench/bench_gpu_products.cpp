// Speed of what a ViT computes on a GPU, each kernel with its per cent of a roof that is measured in the same run.
//
//   bench_gpu_products [PRESET [SAMPLES [TYPE]]]
//
// for a micro-batch of SAMPLES (64) samples of PRESET (vit-b16) in TYPE (bf16; fp16, fp32, tf32): the products of its
// layers by the fastest algorithm of cuBLASLt, attention by each kernel that takes it, GELU and the sums of columns.
// Roofs: the one of products that trainings state (of 8192 x 8192 matrices, held for some tenths of a second), and a
// copy of 1 GiB. What does not run says why. Ends with 77 where there is no GPU.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/machine/autotune.h"
#include "src/machine/roofline.h"
#include "tests/bench/gpu_line.h"

namespace {

using namespace vit_hybrid;
using kernels::device_microseconds;

constexpr int kSkipped = 77;
const c10::Device kGpu(at::kCUDA, 0);

struct Roofs {
  double teraflops;
  double gigabytes;
};

at::Tensor draws(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::TensorOptions(type).device(kGpu)).normal_();
}

Roofs measure_roofs(const train::ProductTypes& types) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const auto flops = train::measure_matmul_roof(kGpu, types.compute, train::kRoofSeconds);
  if (!flops) {
    throw Error(ErrorClass::kTemporary, "the GPU has no memory left for the product of the roof", "see nvidia-smi");
  }
  const at::Tensor from = at::empty({kBytes}, at::TensorOptions(at::kByte).device(kGpu)).zero_();
  const at::Tensor to = at::empty_like(from);
  const double copy = device_microseconds([&] { to.copy_(from); });
  return {*flops * 1e-12, 2.0 * static_cast<double>(kBytes) / copy * 1e-3};
}

void print_compute(const std::string& name, double microseconds, double flops, const Roofs& roofs) {
  const double teraflops = flops / microseconds * 1e-6;
  std::printf("%-64s %9.1f us %8.1f TFLOP/s %5.1f %% of the roof\n", name.c_str(), microseconds, teraflops,
              100.0 * teraflops / roofs.teraflops);
}

void print_memory(const std::string& name, double microseconds, double bytes, const Roofs& roofs) {
  const double gigabytes = bytes / microseconds * 1e-3;
  std::printf("%-64s %9.1f us %8.1f GB/s    %5.1f %% of the roof\n", name.c_str(), microseconds, gigabytes,
              100.0 * gigabytes / roofs.gigabytes);
}

void bench_products(const train::DeviceProblems& problems, const Roofs& roofs) {
  for (const auto& problem : problems.products) {
    bench::attempt(problem.name(), [&] {
      kernels::measure_product(problem, kGpu);
      const kernels::KernelChoice& choice = *kernels::kernel_table().find(problem.name());
      print_compute(problem.name(), choice.microseconds, problem.flops(), roofs);
      std::printf("    %s\n", choice.text.c_str());
    });
  }
}

void bench_attention(const kernels::AttentionProblem& problem, const Roofs& roofs) {
  const auto order = kernels::device_kernel_options().order;
  const int64_t dim = problem.heads * problem.head_dim;
  const at::Tensor qkv = draws({problem.samples, problem.tokens, 3 * dim}, problem.type);
  const at::Tensor dout = draws({problem.samples, problem.tokens, dim}, problem.type);
  for (const auto kernel : kernels::device_attentions(problem, kernels::device_traits(kGpu), order)) {
    if (kernel == kernels::DeviceAttention::kComposite) {
      std::printf("%-64s composite: no fused kernel takes it\n", problem.name().c_str());
      continue;
    }
    const std::string name = problem.name() + " " + kernels::device_attention_name(kernel);
    bench::attempt(name, [&] {
      const double both = device_microseconds([&] {
        const auto pass = kernels::attention_forward(qkv, problem.heads, kernel, kernels::Passes::kBoth);
        kernels::attention_backward(dout, qkv, problem.heads, kernel, order, pass);
      });
      print_compute(name, both, problem.flops(), roofs);
    });
  }
}

void bench_rows(int64_t rows, int64_t columns, at::ScalarType type, const Roofs& roofs) {
  const at::Tensor z = draws({rows, columns}, type), dy = draws({rows, columns}, type);
  const at::Tensor sums = at::empty({columns}, at::TensorOptions(at::kFloat).device(kGpu)).zero_();
  const auto bytes = static_cast<double>(z.nbytes());
  const auto line = [&](const std::string& name, double moved, const auto& kernel) {
    bench::attempt(name, [&] { print_memory(name, device_microseconds(kernel), moved, roofs); });
  };
  for (const auto& [name, kind] : {std::pair{"erf", kernels::GeluKind::kErf}, {"tanh", kernels::GeluKind::kTanh}}) {
    line(str("gelu with ", name), 2.0 * bytes, [&, kind = kind] { kernels::device_gelu(z, kind); });
    line(str("gelu with ", name, ", backward with the bias gradient"), 3.0 * bytes,
         [&, kind = kind] { kernels::device_gelu_backward(dy, z, kind, sums); });
  }
  line("sums of columns", bytes, [&] { kernels::device_add_column_sums(sums, dy); });
}

train::ProductTypes types_of(const std::string& name) {
  if (name == "bf16" || name == "fp16") {
    return {name == "bf16" ? at::kBFloat16 : at::kHalf, at::kFloat, kernels::Fp32Products::kExact};
  }
  if (name == "fp32" || name == "tf32") {
    return {at::kFloat, at::kFloat, name == "tf32" ? kernels::Fp32Products::kTf32 : kernels::Fp32Products::kExact};
  }
  throw Error(ErrorClass::kUsage, "type '" + name + "'", "give bf16, fp16, fp32 or tf32");
}

int bench_preset(int argc, char** argv) {
  const std::string preset = argc > 1 ? argv[1] : "vit-b16";
  const int64_t samples = argc > 2 ? std::atoll(argv[2]) : 64;
  const train::ProductTypes types = types_of(argc > 3 ? argv[3] : "bf16");
  kernels::set_device_kernel_options({types.fp32, kernels::SumOrder::kAny});
  const auto options = model::preset(preset);
  const Roofs roofs = measure_roofs(types);
  std::printf("%s\n%s, %lld samples; roofs: %.1f TFLOP/s, %.1f GB/s\n",
              kernels::machine_text(kernels::device_traits(kGpu), kernels::SumOrder::kAny).c_str(), preset.c_str(),
              static_cast<long long>(samples), roofs.teraflops, roofs.gigabytes);
  const auto problems = train::device_problems_of_mesh(options, 1, {samples}, types);
  bench_products(problems, roofs);
  auto with_tanh = options;
  with_tanh.gelu = kernels::GeluKind::kTanh;
  auto fused = train::device_problems_of_mesh(with_tanh, 1, {samples}, types);
  std::erase_if(fused.products, [](const auto& problem) { return !problem.has_gelu(); });
  bench_products(fused, roofs);
  for (const auto& problem : problems.attentions) {
    bench::attempt(problem.name(), [&] { bench_attention(problem, roofs); });
  }
  bench::attempt("gelu and sums of columns",
                 [&] { bench_rows(samples * options.num_tokens(), options.mlp_hidden, types.compute, roofs); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (!at::hasCUDA()) {
    std::puts("[skipped] no CUDA device on this machine");
    return kSkipped;
  }
  return bench::run([&] { return bench_preset(argc, argv); });
}
