// The products of linear layers on the host against LibTorch's own, at the shapes of ViT-B/16 and of the weather model.
//
//   bench_products [ROUNDS]
//
// on OMP_NUM_THREADS threads. For fp32 and bf16, each product ROUNDS times (20 if not given) in turn with LibTorch's in
// the same type: the best GFLOP/s of both, their ratio, and the per cent of the best rate of the whole type, which
// stands for the processor's. 'renewed' is the forward product right after an optimizer step, packing its weight.
// LibTorch's weight gradient is rounded to the type and not added to anything; ours is added to one in fp32.
#include <ATen/Parallel.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "src/base/host_allocator.h"
#include "src/base/timer.h"
#include "src/kernels/gemm/matmul.h"

namespace {

using namespace vit_hybrid;

struct Shape {
  const char* layer;
  int64_t rows, inputs, outputs;
};

constexpr Shape kShapes[] = {{"ViT-B/16 b8 qkv", 1576, 768, 2304}, {"ViT-B/16 b8 proj", 1576, 768, 768},
                             {"ViT-B/16 b8 fc1", 1576, 768, 3072}, {"ViT-B/16 b8 fc2", 1576, 3072, 768},
                             {"weather b1 qkv", 4050, 384, 1152},  {"weather b1 fc1", 4050, 384, 1536},
                             {"weather b1 fc2", 4050, 1536, 384},  {"ViT-B/16 b8 qkv, tp 4", 1576, 768, 576}};

struct Line {
  std::string name;
  double ours = 0.0;      // GFLOP/s
  double libtorch = 0.0;  // GFLOP/s
};

using Run = std::function<void()>;

double seconds(const Run& run) {
  const Timer timer;
  run();
  return timer.seconds();
}

// Best of `rounds` of both, in turn, after one that does not count.
Line compare(const std::string& name, double flops, int rounds, const Run& ours, const Run& libtorch) {
  double best_ours = std::numeric_limits<double>::infinity();
  double best_libtorch = best_ours;
  ours();
  libtorch();
  for (int round = 0; round < rounds; ++round) {
    best_ours = std::min(best_ours, seconds(ours));
    best_libtorch = std::min(best_libtorch, seconds(libtorch));
  }
  return {name, 1e-9 * flops / best_ours, 1e-9 * flops / best_libtorch};
}

void compare_shape(const Shape& shape, at::ScalarType type, int rounds, std::vector<Line>& lines) {
  const at::Tensor x = at::randn({shape.rows, shape.inputs}).to(type);
  const at::Tensor w = at::randn({shape.outputs, shape.inputs}).to(type);
  const at::Tensor bias = at::randn({shape.outputs}).to(type);
  const at::Tensor dy = at::randn({shape.rows, shape.outputs}).to(type);
  const at::Tensor gradient = at::zeros(w.sizes(), at::kFloat);
  kernels::PackedWeight weight(w);
  int64_t version = 1;
  at::Tensor z;
  const double flops = 2.0 * static_cast<double>(shape.rows * shape.inputs * shape.outputs);
  const auto add = [&](const char* product, const Run& ours, const Run& libtorch) {
    lines.push_back(compare(std::string(shape.layer) + " " + product, flops, rounds, ours, libtorch));
  };
  add(
      "forward", [&] { kernels::linear_forward(x, weight, version, bias); }, [&] { at::linear(x, w, bias); });
  add(
      "forward, renewed", [&] { kernels::linear_forward(x, weight, ++version, bias); },
      [&] { at::linear(x, w, bias); });
  add(
      "forward + gelu", [&] { kernels::linear_gelu_forward(x, weight, version, bias, kernels::GeluKind::kErf, &z); },
      [&] { at::gelu(at::linear(x, w, bias)); });
  add(
      "backward input", [&] { kernels::linear_backward_input(dy, weight, version); }, [&] { at::mm(dy, w); });
  add(
      "weight gradient", [&] { kernels::add_weight_gradient(gradient, dy, x, {}); }, [&] { at::mm(dy.t(), x); });
}

void print(const std::vector<Line>& lines) {
  double best = 0.0;
  for (const Line& line : lines) {
    best = std::max({best, line.ours, line.libtorch});
  }
  std::printf("%-34s %9s %9s %7s %7s\n", "", "ours", "LibTorch", "ratio", "of best");
  for (const Line& line : lines) {
    std::printf("%-34s %9.0f %9.0f %7.2f %5.0f %%\n", line.name.c_str(), line.ours, line.libtorch,
                line.ours / line.libtorch, 100.0 * line.ours / best);
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: bench_products [ROUNDS]\n");
    return 64;
  }
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    std::printf("%s, %d threads, GFLOP/s; %s\n", type == at::kFloat ? "fp32" : "bf16", at::get_num_threads(),
                kernels::product_kernel_text(at::kCPU, type, kernels::GeluKind::kErf).c_str());
    std::vector<Line> lines;
    for (const Shape& shape : kShapes) {
      compare_shape(shape, type, rounds, lines);
    }
    print(lines);
  }
  return 0;
}
