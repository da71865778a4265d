// Norms, residual sums, GELU, dropout and the loss on the host: memory traffic beside that of a copy, and LibTorch's
// operations for the same.
//
//   bench_rows [ROUNDS]
//
// runs each operation ROUNDS (20) times in turn with LibTorch's, on OMP_NUM_THREADS threads, on tokens of weather-short
// (batch 1) and ViT-B/16 (batch 8), in fp32 and bf16. GB/s are the bytes that must be read and written, once each, over
// the shortest time; "copy" copies as many from one array to another.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "src/base/host_allocator.h"
#include "src/base/timer.h"
#include "src/kernels/dropout.h"
#include "src/kernels/field_error.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/layer_norm.h"

namespace {

using namespace vit_hybrid;

constexpr double kEps = 1e-6;
constexpr auto kErf = kernels::GeluKind::kErf, kTanh = kernels::GeluKind::kTanh;

struct Shape {
  const char* name;
  int64_t rows;
  int64_t features;
};

struct Operation {
  std::string name;
  int64_t bytes;
  std::function<void()> ours;
  std::function<void()> composed;  ///< of LibTorch's operations
};

double seconds(const std::function<void()>& run) {
  const Timer timer;
  run();
  return timer.seconds();
}

// Bytes copied from one array into another, each half as long as `bytes`.
std::function<void()> copy_of(int64_t bytes) {
  const at::Tensor from = at::zeros({bytes / 2}, at::kByte);
  const at::Tensor to = at::zeros({bytes / 2}, at::kByte);
  return [from, to] {
    at::parallel_for(0, from.numel(), 1 << 18, [&](int64_t begin, int64_t end) {
      std::memcpy(to.mutable_data_ptr<uint8_t>() + begin, from.const_data_ptr<uint8_t>() + begin,
                  static_cast<size_t>(end - begin));
    });
  };
}

void measure(const Operation& operation, int rounds) {
  const auto copy = copy_of(operation.bytes);
  double best[3] = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(),
                    std::numeric_limits<double>::infinity()};
  for (int round = 0; round < rounds; ++round) {
    const std::function<void()>* const runs[] = {&copy, &operation.ours, &operation.composed};
    for (int i = 0; i < 3; ++i) {
      best[i] = std::min(best[i], seconds(*runs[i]));
    }
  }
  const auto gigabytes = static_cast<double>(operation.bytes) * 1e-9;
  std::printf("  %-34s %8.1f %8.1f %7.0f %% %8.1f %8.2f\n", operation.name.c_str(), gigabytes / best[0],
              gigabytes / best[1], 100.0 * best[0] / best[1], gigabytes / best[2], best[2] / best[1]);
}

std::vector<Operation> operations_on_tokens(const Shape& shape, at::ScalarType type) {
  const auto options = at::TensorOptions(type);
  const auto random = [&] { return at::randn({1, shape.rows, shape.features}, at::kFloat).to(type); };
  const at::Tensor z = random();
  const at::Tensor branch = random();
  const at::Tensor dy = random();
  const at::Tensor weight = at::randn({shape.features}, at::kFloat).to(type);
  const at::Tensor bias = at::randn({shape.features}, at::kFloat).to(type);
  const at::Tensor dweight = at::zeros({shape.features}, at::kFloat);
  const at::Tensor dbias = at::zeros({shape.features}, at::kFloat);
  const kernels::Normed normed = kernels::layer_norm(z, weight, bias, kEps);
  const auto [y, mean, rstd] = at::native_layer_norm(z, weight.sizes(), weight, bias, kEps);
  const int64_t array = z.numel() * z.element_size();

  const auto norm_backward = [=](const at::Tensor& residual) {
    kernels::layer_norm_backward(dy, {z, normed.mean, normed.rstd}, weight, residual, {dweight, dbias});
  };
  const auto composed_backward = [=, mean = mean, rstd = rstd] {
    auto [dx, dw, db] =
        at::native_layer_norm_backward(dy, z, weight.sizes(), mean, rstd, weight, bias, {true, true, true});
    dweight.add_(dw);
    dbias.add_(db);
    return dx;
  };
  static const std::vector<int64_t> samples = {0};
  SampleContext context;
  context.samples = samples;
  context.mode = Mode::kTraining;
  const auto drop = [=] {
    kernels::dropout(z, {0, shape.features}, shape.features, {0.1, 1, kernels::DropSite::kOutput}, context);
  };
  return {
      {"LayerNorm", 2 * array, [=] { kernels::layer_norm(z, weight, bias, kEps); },
       [=] { at::native_layer_norm(z, weight.sizes(), weight, bias, kEps); }},
      {"residual + LayerNorm", 4 * array,
       [=] { kernels::residual_layer_norm(z, branch, at::Tensor(), weight, bias, kEps); },
       [=] { at::native_layer_norm(branch.add_(z), weight.sizes(), weight, bias, kEps); }},
      {"LayerNorm backward", 3 * array, [=] { norm_backward(at::Tensor()); }, [=] { composed_backward(); }},
      {"LayerNorm backward + residual", 4 * array, [=] { norm_backward(branch); },
       [=] { composed_backward().add_(branch); }},
      {"residual", 3 * array, [=] { kernels::residual_sum(z, branch, at::Tensor()); }, [=] { branch.add_(z); }},
      {"GELU", 2 * array, [=] { kernels::gelu(z, kErf); }, [=] { at::gelu(z); }},
      {"GELU backward, sums over the rows", 3 * array, [=] { kernels::gelu_backward(dy[0], z[0], kErf, dbias); },
       [=] { dbias.add_(at::gelu_backward(dy[0], z[0]).sum(0, false, at::kFloat)); }},
      {"GELU with tanh", 2 * array, [=] { kernels::gelu(z, kTanh); }, [=] { at::gelu(z, "tanh"); }},
      {"its backward", 3 * array, [=] { kernels::gelu_backward(dy[0], z[0], kTanh, dbias); },
       [=] { dbias.add_(at::gelu_backward(dy[0], z[0], "tanh").sum(0, false, at::kFloat)); }},
      {"sums over the rows", array, [=] { kernels::add_column_sums(dbias, z[0]); },
       [=] { dbias.add_(z[0].sum(0, false, at::kFloat)); }},
      {"dropout (ours: keyed)", 2 * array + z.numel(), drop,
       [=] { z.mul(at::bernoulli(at::empty(z.sizes(), options), 0.9)).mul_(1.0 / 0.9); }},
  };
}

std::vector<Operation> operations_on_fields(at::ScalarType type) {
  const kernels::PatchGrid grid{360, 720, 8, 8, 20};
  const at::Tensor patches = at::randn({1, grid.num_patches(), grid.num_features()}, at::kFloat).to(type);
  const at::Tensor fields = at::randn({1, grid.channels, grid.height, grid.width}, at::kFloat);
  const at::Tensor factors = at::zeros({1}, at::kDouble).add_(1e-4);
  const int64_t prediction = patches.numel() * patches.element_size();
  const int64_t truth = fields.numel() * fields.element_size();
  const at::Tensor narrow = fields.to(type);
  const auto norm = [](const at::Tensor& x) {
    return at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2, 3}, false, at::kDouble);
  };
  const auto gradient = [=] {
    const at::Tensor by_sample = factors.to(type).view({-1, 1, 1, 1});
    // Back into patches, as autograd does it.
    return (kernels::unpatchify(patches, grid) - narrow)
        .mul_(by_sample)
        .view({1, grid.channels, grid.rows(), grid.patch_height, grid.columns(), grid.patch_width})
        .permute({0, 2, 4, 3, 5, 1})
        .reshape(patches.sizes());
  };
  return {
      {"relative L2", prediction + truth, [=] { kernels::field_sums(patches, fields, grid); },
       [=] { norm(kernels::unpatchify(patches, grid) - narrow).div_(norm(narrow)); }},
      {"relative L2 backward", 2 * prediction + truth, [=] { kernels::field_gradient(patches, fields, grid, factors); },
       [=] { gradient(); }},
  };
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;
  const at::NoGradGuard no_grad;
  std::printf("%d threads, best of %d rounds\n  %-34s %8s %8s %9s %8s %8s\n", at::get_num_threads(), rounds, "GB/s",
              "copy", "ours", "of copy", "ATen", "ratio");
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const Shape& shape : {Shape{"weather-short", 4050, 384}, Shape{"ViT-B/16", 8 * 197, 768}}) {
      std::printf("%s, [%ld, %ld], %s\n", shape.name, static_cast<long>(shape.rows), static_cast<long>(shape.features),
                  c10::toString(type));
      for (const Operation& operation : operations_on_tokens(shape, type)) {
        measure(operation, rounds);
      }
    }
    std::printf("fields, [1, 20, 360, 720], predictions %s\n", c10::toString(type));
    for (const Operation& operation : operations_on_fields(type)) {
      measure(operation, rounds);
    }
  }
  return 0;
}
