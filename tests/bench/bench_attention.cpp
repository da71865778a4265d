// Attention forward and backward: ours against LibTorch's scaled_dot_product_attention, in the same run.
//
//   bench_attention [ROUNDS [THREADS]]
//
// Both go in turn, ROUNDS (5) times on THREADS (2) threads; the best time of each counts. GF/s are those of the matrix
// products that attention consists of: 4 N^2 d a head forward, 10 N^2 d backward. The roof is the rate of the product
// of two blocks in a cache by oneDNN's block kernel, on as many threads. With dropout LibTorch leaves its fused kernel.
#include <torch/csrc/autograd/autograd.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>

#include "src/base/host_allocator.h"
#include "src/base/timer.h"
#include "src/kernels/attention/attend.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/small_product.h"

namespace {

using namespace vit_hybrid;

struct Shape {
  const char* name;
  int64_t samples, tokens, heads, head_dim;

  double forward_flops() const { return 4.0 * static_cast<double>(samples * heads * tokens * tokens * head_dim); }
};

constexpr Shape kShapes[] = {{"weather-short, 4050 tokens, 8 heads of 48, batch 1", 1, 4050, 8, 48},
                             {"ViT-B/16, 197 tokens, 12 heads of 64, batch 8", 8, 197, 12, 64}};

/// The best seconds so far.
struct Best {
  double forward = std::numeric_limits<double>::infinity();
  double backward = std::numeric_limits<double>::infinity();

  double total() const { return forward + backward; }
};

using Attention = std::function<at::Tensor(const at::Tensor& qkv)>;

void measure(const at::Tensor& qkv, const at::Tensor& dout, const Attention& attention, Best& best) {
  const at::Tensor input = qkv.detach().requires_grad_();
  Timer timer;
  const at::Tensor out = attention(input);
  best.forward = std::min(best.forward, timer.restart());
  torch::autograd::backward({out}, {dout});
  best.backward = std::min(best.backward, timer.seconds());
}

// Operations a second of the block kernel, all threads together.
template <class T>
double roof(int threads) {
  constexpr int64_t kRows = 128;
  constexpr int64_t kColumns = 512;
  constexpr int64_t kDepth = 64;
  constexpr int kProducts = 2000;
  const auto options = at::TensorOptions(c10::CppTypeToScalarType<T>::value);
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 5; ++round) {
    const Timer timer;
    at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
      const at::Tensor a = at::randn({kRows, kDepth}, at::kFloat).to(options.dtype());
      const at::Tensor b = at::randn({kDepth, kColumns}, at::kFloat).to(options.dtype());
      at::Tensor c = at::empty({kRows, kColumns}, at::TensorOptions(at::kFloat));
      for (int i = 0; i < kProducts; ++i) {
        kernels::small_product({kRows, kColumns, kDepth, kDepth, kColumns, kColumns}, kernels::Store::kOverwrite,
                               a.const_data_ptr<T>(), b.const_data_ptr<T>(), c.mutable_data_ptr<float>());
      }
      kernels::finish_small_products();
    });
    best = std::min(best, timer.seconds());
  }
  return 2.0 * kRows * kColumns * kDepth * kProducts * threads / best;
}

double roof_of(at::ScalarType type, int threads) {
  const bool in_bf16 = type == at::kBFloat16 && kernels::has_bf16_block_kernel();
  return in_bf16 ? roof<c10::BFloat16>(threads) : roof<float>(threads);
}

void print_row(const char* name, const Shape& shape, const Best& best, double roof) {
  const double flops = shape.forward_flops();
  std::printf(
      "    %-10s forward %8.2f ms %6.0f GF/s   backward %8.2f ms %6.0f GF/s   both %6.0f GF/s, %3.0f %% of %.0f\n",
      name, best.forward * 1e3, flops / best.forward * 1e-9, best.backward * 1e3, 2.5 * flops / best.backward * 1e-9,
      3.5 * flops / best.total() * 1e-9, 100.0 * 3.5 * flops / best.total() / roof, roof * 1e-9);
}

void compare(const Shape& shape, at::ScalarType type, double rate, int rounds, double roof) {
  SampleContext context;
  context.mode = Mode::kTraining;
  for (int64_t n = 0; n < shape.samples; ++n) {
    context.samples.push_back(n);
  }
  const kernels::AttentionDropout dropout({rate, 1, kernels::DropSite::kAttention}, context, 0, shape.tokens);
  const at::Tensor qkv = at::randn({shape.samples, shape.tokens, 3 * shape.heads * shape.head_dim}).to(type);
  const at::Tensor dout = at::randn({shape.samples, shape.tokens, shape.heads * shape.head_dim}).to(type);
  Best ours;
  Best libtorch;
  for (int round = 0; round < rounds; ++round) {
    measure(
        qkv, dout, [&](const at::Tensor& x) { return kernels::attend(x, shape.heads, dropout); }, ours);
    const auto theirs = [&](const at::Tensor& x) {
      const auto [q, k, v] = kernels::split_heads(x, shape.heads);
      return kernels::merge_heads(at::scaled_dot_product_attention(q, k, v, {}, rate));
    };
    measure(qkv, dout, theirs, libtorch);
  }
  std::printf("  %s%s: %.2f times LibTorch\n", c10::toString(type), rate > 0.0 ? ", dropout 0.1" : "",
              libtorch.total() / ours.total());
  print_row("ours", shape, ours, roof);
  print_row("LibTorch", shape, libtorch, roof);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  if (rounds < 1 || threads < 1) {
    std::fprintf(stderr, "usage: bench_attention [ROUNDS [THREADS]]\n");
    return 1;
  }
  keep_freed_memory();
  at::set_num_threads(threads);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    std::printf("%s: %s\n", c10::toString(type), kernels::attention_kernel_text(at::kCPU, type, false).c_str());
  }
  for (const Shape& shape : kShapes) {
    std::printf("%s, %d threads\n", shape.name, threads);
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const double roof = roof_of(type, threads);
      for (const double rate : {0.0, 0.1}) {
        compare(shape, type, rate, rounds, roof);
      }
    }
  }
  return 0;
}
