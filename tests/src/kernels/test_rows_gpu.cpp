// The model's own kernels on a GPU against ATen operations in fp64 on the same device, and masks against the host's.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>

#include <tuple>
#include <utility>
#include <vector>

#include "src/kernels/attention/device_attention.h"
#include "src/kernels/dropout.h"
#include "src/kernels/field_error.h"
#include "src/kernels/layer_norm.h"
#include "tests/support/compare.h"
#include "tests/support/gpu/own_gpu.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using namespace vit_hybrid::kernels;

namespace {

at::Tensor normals(at::IntArrayRef shape, at::ScalarType type) {
  static const c10::Device device = own_gpu();
  return at::randn(shape, at::TensorOptions(at::kDouble).device(device)).to(type);
}

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(at::kDouble);
}

at::ScalarType float_of(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// Calls `check(type, bound)`: the bound is for a value that is rounded once.
template <class Check>
void for_types(const Check& check) {
  check(at::kFloat, 4e-6);
  check(at::kDouble, 1e-12);
  check(at::kBFloat16, 6e-3);
  check(at::kHalf, 8e-4);
}

void check_norm(at::ScalarType type, double bound, int64_t tokens, int64_t features, at::ScalarType gradient_type) {
  CAPTURE(features);
  CAPTURE(c10::toString(type));
  const at::Tensor x = normals({2, tokens, features}, type), branch = normals({2, tokens, features}, type);
  const at::Tensor weight = normals({features}, type), bias = normals({features}, type);
  const at::Tensor scales = normals({2}, float_of(type));
  const at::Tensor expected = wide(x) + wide(branch) * wide(scales).view({2, 1, 1});
  const NormedSum out = device_residual_layer_norm(x, branch, scales, weight, bias, 1e-6);
  CHECK(out.sum.is_same(branch));
  CHECK(relative_error(out.sum, expected) <= bound);
  const auto [y, mean, rstd] = at::native_layer_norm(wide(out.sum), {features}, wide(weight), wide(bias), 1e-6);
  CHECK(relative_error(out.normed.y, y) <= bound);
  CHECK(relative_error(out.normed.mean, mean.view(-1)) <= 1e-5);
  CHECK(relative_error(out.normed.rstd, rstd.view(-1)) <= 1e-5);
  const Normed plain = device_layer_norm(out.sum, weight, bias, 1e-6);
  CHECK(plain.y.equal(out.normed.y));
  // Without stochastic depth.
  const at::Tensor second = normals({2, tokens, features}, type), unscaled = wide(x) + wide(second);
  const NormedSum without = device_residual_layer_norm(x, second, {}, weight, bias, 1e-6);
  CHECK(relative_error(without.sum, unscaled) <= bound);
  CHECK(device_layer_norm(without.sum, weight, bias, 1e-6).y.equal(without.normed.y));

  const at::Tensor dy = normals({2, tokens, features}, type), residual = normals({2, tokens, features}, type);
  const at::Tensor before = normals({2, features}, gradient_type);
  const auto [dx, dweight, dbias] = at::native_layer_norm_backward(wide(dy), wide(out.sum), {features}, mean, rstd,
                                                                   wide(weight), wide(bias), {true, true, true});
  const double sum_bound = gradient_type == float_of(type) ? (type == at::kDouble ? 1e-12 : 2e-5) : bound;
  const kernels::NormInput input{out.sum, out.normed.mean, out.normed.rstd};
  at::Tensor first_gradients;
  for (const at::Tensor& added : {residual, at::Tensor()}) {
    const at::Tensor gradients = before.clone();
    const at::Tensor ours = device_layer_norm_backward(dy, input, weight, added, {gradients[0], gradients[1]});
    CHECK(relative_error(ours, added.defined() ? dx + wide(added) : dx) <= bound);
    CHECK(relative_error(gradients[0], wide(before[0]) + dweight) <= sum_bound);
    CHECK(relative_error(gradients[1], wide(before[1]) + dbias) <= sum_bound);
    CHECK((!first_gradients.defined() || first_gradients.equal(gradients)));  // the same bits each time
    first_gradients = gradients;
  }
  // With the gradient of a bias that was added to x: of the bits that are written, in the same order each time.
  at::Tensor first_sums;
  for (int turn = 0; turn < 2; ++turn) {
    const at::Tensor gradients = at::cat({before, before[0].unsqueeze(0)});
    const at::Tensor ours =
        device_layer_norm_backward(dy, input, weight, residual, {gradients[0], gradients[1], gradients[2]});
    CHECK(relative_error(ours, dx + wide(residual)) <= bound);
    CHECK(relative_error(gradients[0], wide(before[0]) + dweight) <= sum_bound);
    CHECK(relative_error(gradients[1], wide(before[1]) + dbias) <= sum_bound);
    CHECK(relative_error(gradients[2], wide(before[0]) + wide(ours).sum(at::IntArrayRef{0, 1})) <= sum_bound);
    CHECK((!first_sums.defined() || first_sums.equal(gradients)));
    first_sums = gradients;
  }
}

}  // namespace

TEST_SUITE_BEGIN("one rank");

TEST_CASE("gpu kernels: residual sum and LayerNorm, forward and backward, in rows of any length") {
  for_types([](at::ScalarType type, double bound) {
    for (const int64_t features : {7, 48, 192, 384, 768, 1024, 1280, 1281, 1408, 1664, 2048, 2049, 4096, 4097, 5000}) {
      check_norm(type, bound, 197, features, float_of(type));
    }
    check_norm(type, bound, 4050, 768, float_of(type));
    if (type == at::kBFloat16 || type == at::kHalf) {
      check_norm(type, bound, 197, 768, type);
    }
  });
}

TEST_CASE("gpu kernels: rows that are not aligned are normed as others are") {
  for (const int64_t features : {768, 1408, 4096}) {
    const at::Tensor memory = normals({11 * features + 1}, at::kHalf), weight = normals({features}, at::kHalf);
    const at::Tensor x = memory.narrow(0, 1, 11 * features).view({11, features}), aligned = x.clone();
    const Normed shifted = device_layer_norm(x, weight, weight, 1e-6);
    CHECK(relative_error(shifted.y, device_layer_norm(aligned, weight, weight, 1e-6).y) <= 1e-3);
    const auto backward = [&](const at::Tensor& rows) {
      const at::Tensor sums = at::zeros({2, features}, weight.options().dtype(at::kFloat));
      const NormInput input{rows, shifted.mean, shifted.rstd};
      const at::Tensor dx = device_layer_norm_backward(rows, input, weight, rows, {sums[0], sums[1]});
      return std::pair(dx, sums);
    };
    const auto [dx, sums] = backward(x);
    const auto [aligned_dx, aligned_sums] = backward(aligned);
    CHECK(relative_error(dx, aligned_dx) <= 1e-3);
    CHECK(relative_error(sums, aligned_sums) <= 1e-5);
  }
}

TEST_CASE("gpu kernels: residual sums and scaled samples") {
  for_types([](at::ScalarType type, double bound) {
    for (const int64_t elements : {1, 33, 1 << 18}) {
      const at::Tensor a = normals({3, elements}, type), b = normals({3, elements}, type);
      const at::Tensor scales = normals({3}, float_of(type)), factors = wide(scales).view({3, 1});
      CHECK(relative_error(device_scale_samples(a, scales), wide(a) * factors) <= bound);
      CHECK(relative_error(device_residual_sum(a, b.clone(), scales), wide(a) + wide(b) * factors) <= bound);
      CHECK(relative_error(device_residual_sum(a, b.clone(), {}), wide(a) + wide(b)) <= bound);
    }
  });
}

TEST_CASE("gpu kernels: dropout, drop path and attention masks draw what the host draws") {
  SampleContext context;
  context.seed = 5;
  context.step = 3;
  context.mode = Mode::kTraining;
  for (int64_t n = 0; n < 300; ++n) {  // more than a kernel takes at a time
    context.samples.push_back(n * n + 1);
  }
  const KeyedDrop features({0.3, 2, DropSite::kHidden}, Purpose::kDropout, context);
  for_types([&](at::ScalarType type, double bound) {
    for (const auto& [first, width] : {std::tuple(16, 32), std::tuple(2, 32), std::tuple(0, 7)}) {
      const at::Tensor x = normals({300, 5, width}, type).abs() + 0.5;  // not 0
      const DrawPlaces places{{first, first + width}, 64};
      const Dropped host = drop_features(x.cpu(), features, places);
      const at::Tensor y = device_dropout(x, features, places).y.cpu();
      CHECK(relative_error(y, host.y) <= bound);
      CHECK(y.ne(0).to(at::kByte).equal(host.keep));
    }
    const DropKey path{0.4, 1, DropSite::kMlpPath};
    const at::Tensor branch = normals({300, 2, 8}, type);
    CHECK(path_scales(branch, path, context).cpu().equal(path_scales(branch.cpu(), path, context)));
  });
  constexpr int64_t kTokens = 37;
  const DropKey key{0.2, 4, DropSite::kAttention};
  const AttentionDropout dropout(key, context, 3, kTokens);
  const RandomStream stream = key.stream(Purpose::kAttentionDropout, context);
  const AttentionMaskKey mask{stream, drop_threshold(key.rate), context.samples, 3, 2, kTokens};
  const c10::Device device = normals({1}, at::kFloat).device();
  const at::Tensor keep = device_attention_mask(mask, {5, 30}, {0, kTokens}, device).cpu();
  at::Tensor expected = at::zeros_like(keep);
  auto* row = expected.data_ptr<uint8_t>();
  for (int64_t sample = 0; sample < 300; ++sample) {
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t query = 5; query < 30; ++query, row += kTokens) {
        dropout.fill_row(sample, head, query, {0, kTokens}, row);
      }
    }
  }
  CHECK(keep.equal(expected));
}

TEST_CASE("gpu kernels: the gradients of q, k and v are joined, by vectors and one by one, in any layout") {
  for_types([](at::ScalarType type, double /*bound*/) {
    // Whole vectors or not; more rows than a block takes; a row of heads longer than the threads of a block.
    for (const auto& [tokens, heads, head_dim] : {std::tuple(1, 1, 8), std::tuple(197, 3, 64), std::tuple(33, 5, 7)}) {
      const std::vector<int64_t> shape = {2, tokens, heads, head_dim};
      const at::Tensor dq = normals(shape, type), dk = normals(shape, type);
      const at::Tensor by_heads = normals({2, heads, tokens, head_dim}, type).transpose(1, 2);
      const at::Tensor shifted = normals({dq.numel() + 1}, type).narrow(0, 1, dq.numel()).view(shape);
      for (const at::Tensor& dv : {dq.flip(1), by_heads, shifted}) {
        CHECK(device_qkv_gradient(dq, dk, dv).equal(at::cat({dq.flatten(2), dk.flatten(2), dv.flatten(2)}, 2)));
      }
    }
  });
}

namespace {

// Fields [B, C, H, W] as patches, the features over (row, column, channel); padded with zeros.
at::Tensor in_patches(const at::Tensor& fields, const PatchGrid& grid) {
  return patchify(fields, grid, Padding::kZero)
      .unflatten(2, {grid.channels, grid.patch_pixels()})
      .transpose(2, 3)
      .flatten(2);
}

}  // namespace

TEST_CASE("gpu kernels: errors of fields in patches, and their gradients") {
  for_types([](at::ScalarType type, double bound) {
    for (const PatchGrid& grid : {PatchGrid{6, 10, 2, 2, 3}, PatchGrid{360, 720, 8, 8, 20}, PatchGrid{3, 6, 3, 3, 1},
                                  PatchGrid{13, 10, 4, 3, 5}, PatchGrid{181, 360, 7, 8, 8}}) {
      const at::Tensor patches = normals({2, grid.num_patches(), grid.num_features()}, type);
      const at::Tensor fields = normals({2, grid.channels, grid.height, grid.width}, float_of(type));
      const at::Tensor factors = normals({2}, at::kDouble);
      const at::Tensor truth = in_patches(wide(fields), grid), is_inside = in_patches(at::ones_like(fields), grid);
      const at::Tensor difference = (wide(patches) - truth) * is_inside;
      const at::Tensor squares = device_field_sums(patches, fields, grid, {});
      CHECK(relative_error(squares[0], difference.square().sum({1, 2})) <= 1e-6);
      CHECK(relative_error(squares[1], truth.square().sum({1, 2})) <= 1e-12);
      CHECK(device_field_sums(patches, fields, grid, {}).equal(squares));
      const at::Tensor gradient = device_field_gradient(patches, fields, grid, factors, {});
      CHECK(relative_error(gradient, difference * factors.view({2, 1, 1})) <= bound);

      const FieldMeasure absolute{ErrorPower::kAbsolute,
                                  {normals({grid.height}, at::kDouble), normals({grid.channels}, at::kDouble)}};
      const at::Tensor weight =
          in_patches((absolute.weights.channels.view({1, -1, 1, 1}) * absolute.weights.rows.view({1, 1, -1, 1}))
                         .expand(fields.sizes())
                         .contiguous(),
                     grid);
      const at::Tensor sums = device_field_sums(patches, fields, grid, absolute);
      CHECK(relative_error(sums[0], (weight * difference.abs()).sum({1, 2})) <= 1e-6);
      CHECK(relative_error(sums[1], (weight * truth.abs()).sum({1, 2})) <= 1e-6);
      CHECK(relative_error(device_field_gradient(patches, fields, grid, factors, absolute),
                           weight * difference.sign() * factors.view({2, 1, 1})) <= bound);
    }
  });
}

// CUDA has no more than 65,535 blocks along y; those of the joined gradients take 32 rows each.
TEST_CASE("gpu kernels: more rows and samples than a grid has blocks along y") {
  for_types([](at::ScalarType type, double bound) {
    constexpr int64_t kMany = 70000;
    const at::Tensor a = normals({kMany, 8}, type), b = normals({kMany, 8}, type),
                     scales = normals({kMany}, float_of(type));
    CHECK(relative_error(device_residual_sum(a, b.clone(), scales), wide(a) + wide(b) * wide(scales).view({-1, 1})) <=
          bound);
    check_norm(type, bound, kMany / 2, 8, float_of(type));
    const at::Tensor dq = normals({1, 32 * kMany, 1, 8}, type), dk = dq + 1, dv = dq + 2;
    CHECK(device_qkv_gradient(dq, dk, dv).equal(at::cat({dq.flatten(2), dk.flatten(2), dv.flatten(2)}, 2)));
  });
}

TEST_SUITE_END();
