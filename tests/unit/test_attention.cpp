// The attention kernels against LibTorch's plain attention with an explicit mask.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/zeros.h>

#include "model/attend.h"
#include "model/attention_heads.h"
#include "model/attention_rows.h"
#include "model/blocked_attention.h"
#include "model/fused_attention.h"
#include "model/masked_attention.h"
#include "tests/support/compare.h"
#include "tests/support/group_of_one.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using model::AttentionDropout;
using model::DropKey;
using model::DropSite;

namespace {

struct Shape {
  int64_t samples, tokens, heads, head_dim;
};

// One block and less, several blocks of both kinds, one token; head widths from odd to wide.
const std::vector<Shape> kShapes = {{2, 15, 3, 3}, {3, 197, 2, 64}, {1, 1100, 2, 48}, {2, 1, 1, 8}, {1, 129, 1, 88}};

constexpr int64_t kFirstHead = 2;

AttentionDropout make_dropout(const Shape& shape, double rate) {
  return {DropKey{rate, 3, DropSite::kAttention}, test_context(shape.samples, tensor::Mode::kTraining), kFirstHead,
          shape.tokens};
}

// The mask [B, h, N, N] draw by draw.
at::Tensor explicit_mask(const Shape& shape, double rate) {
  const auto context = test_context(shape.samples, tensor::Mode::kTraining);
  const RandomStream stream(context.seed, Purpose::kAttentionDropout, static_cast<uint64_t>(context.step),
                            16 * 3 + static_cast<uint64_t>(DropSite::kAttention));
  at::Tensor mask = at::zeros({shape.samples, shape.heads, shape.tokens, shape.tokens}, at::kBool);
  auto* data = mask.mutable_data_ptr<bool>();
  for (int64_t n = 0; n < shape.samples; ++n) {
    for (int64_t row = 0; row < shape.heads * shape.tokens; ++row) {
      for (int64_t key = 0; key < shape.tokens; ++key) {
        const auto draw = static_cast<uint64_t>((kFirstHead * shape.tokens + row) * shape.tokens + key);
        const uint32_t bits = stream.bits(draw, static_cast<uint64_t>(context.samples[static_cast<size_t>(n)]));
        *data++ = bits >= rate * 4294967296.0;
      }
    }
  }
  return mask;
}

struct Result {
  at::Tensor out;
  at::Tensor gradient;
};

template <class Attention>
Result run(const at::Tensor& qkv, const at::Tensor& dout, Attention attention) {
  const at::Tensor input = qkv.detach().clone().requires_grad_();
  const at::Tensor out = attention(input);
  torch::autograd::backward({out}, {dout});
  return {out.detach(), input.grad()};
}

// Scores of a few units, so that the softmax is neither flat nor a maximum.
at::Tensor make_qkv(const Shape& shape) {
  return normal_tensor({shape.samples, shape.tokens, 3 * shape.heads * shape.head_dim}, 21) * 1.5;
}

at::Tensor make_dout(const Shape& shape) {
  return normal_tensor({shape.samples, shape.tokens, shape.heads * shape.head_dim}, 22);
}

Result reference(const Shape& shape, double rate) {
  return run(make_qkv(shape), make_dout(shape), [&](const at::Tensor& qkv) {
    const auto [q, k, v] = model::split_heads(qkv, shape.heads);
    std::optional<at::Tensor> mask;
    if (rate > 0.0) {
      mask = explicit_mask(shape, rate);
    }
    return model::merge_heads(std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, {}, rate, false, mask)));
  });
}

void check(const Result& ours, const Result& expected, double bound) {
  CHECK(relative_error(ours.out, expected.out) <= bound);
  CHECK(relative_error(ours.gradient, expected.gradient) <= bound);
}

constexpr double kDoubleBound = 1e-13;
// fp32: products over up to 1100 terms, exponents of size 20 off by a unit of 6e-8 each, and the exponential itself.
constexpr double kFloatBound = 1e-5;

}  // namespace

TEST_CASE("attention: without dropout all kernels are LibTorch's plain attention") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.tokens);
    const Result expected = reference(shape, 0.0);
    for (const auto type : {at::kDouble, at::kFloat}) {
      const double bound = type == at::kDouble ? kDoubleBound : kFloatBound;
      const at::Tensor qkv = make_qkv(shape).to(type);
      const at::Tensor dout = make_dout(shape).to(type);
      check(run(qkv, dout, [&](const auto& x) { return model::fused_attention(x, shape.heads); }), expected, bound);
      check(run(qkv, dout, [&](const auto& x) { return model::blocked_attention(x, shape.heads, {}); }), expected,
            bound);
      check(run(qkv, dout, [&](const auto& x) { return model::attend(x, shape.heads, {}); }), expected, bound);
    }
  }
}

TEST_CASE("attention: with dropout ours is the plain attention with the mask draw by draw") {
  constexpr double kRate = 0.3;
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.tokens);
    const Result expected = reference(shape, kRate);
    const AttentionDropout dropout = make_dropout(shape, kRate);
    for (const auto type : {at::kDouble, at::kFloat}) {
      const double bound = type == at::kDouble ? kDoubleBound : kFloatBound;
      const at::Tensor qkv = make_qkv(shape).to(type);
      const at::Tensor dout = make_dout(shape).to(type);
      check(run(qkv, dout, [&](const auto& x) { return model::blocked_attention(x, shape.heads, dropout); }), expected,
            bound);
      check(run(qkv, dout, [&](const auto& x) { return model::masked_attention(x, shape.heads, dropout); }), expected,
            bound);
    }
  }
}

TEST_CASE("attention: scores of any size give no overflow") {
  const Shape shape{1, 600, 1, 16};
  const at::Tensor qkv = (make_qkv(shape) * 12.0).to(at::kFloat);  // scores of several hundreds
  const at::Tensor dout = make_dout(shape).to(at::kFloat);
  const auto attention = [&](const at::Tensor& x) { return model::blocked_attention(x, 1, {}); };
  const Result ours = run(qkv, dout, attention);
  const Result exact = run(qkv.to(at::kDouble), dout.to(at::kDouble), attention);
  // Scores near 500 are rounded by 3e-5, and so are the weights.
  CHECK(relative_error(ours.out, exact.out) <= 1e-3);
  CHECK(relative_error(ours.gradient, exact.gradient) <= 1e-3);
}

TEST_CASE("attention: the bits do not depend on the number of threads") {
  const Shape shape{2, 700, 2, 16};
  const AttentionDropout dropout = make_dropout(shape, 0.1);
  const auto compute = [&] {
    return run(make_qkv(shape).to(at::kFloat), make_dout(shape).to(at::kFloat),
               [&](const auto& x) { return model::blocked_attention(x, shape.heads, dropout); });
  };
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Result one = compute();
  at::set_num_threads(3);
  const Result three = compute();
  at::set_num_threads(before);
  CHECK(one.out.equal(three.out));
  CHECK(one.gradient.equal(three.gradient));
}

TEST_CASE("attention: what is not a number stays so") {
  const Shape shape{1, 40, 1, 8};
  at::Tensor qkv = make_qkv(shape).to(at::kFloat);
  qkv[0][17][2] = std::nan("");
  const at::Tensor out = model::blocked_attention(qkv, 1, {});
  CHECK(out[0][17].isnan().all().item<bool>());
}

TEST_CASE("attention: fp32 exponentials are exact to three units") {
  double worst = 0.0;
  for (double x = -86.0; x <= 80.0; x += 0.0137) {
    auto value = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(value));
    const float sum = model::exponentials(&value, 1, 1.0f, 0.0f);
    CHECK(sum == value);
    worst = std::max(worst, std::abs(value / exact - 1.0));
  }
  CHECK(worst < 3e-7);
  float tiny = -1e30f;
  model::exponentials(&tiny, 1, 1.0f, 0.0f);
  CHECK(tiny < 1e-37f);
}

TEST_CASE("attention: the model with attention dropout is the reference with masks draw by draw") {
  for (auto options : {small_forecaster(), small_classifier(model::Pooling::kToken)}) {
    options.attention_dropout = 0.25;
    options.dropout = 0.1;
    const auto parameters = test_parameters(options);
    const at::Tensor images = test_images(options, 3);
    const at::Tensor gradient = normal_tensor(output_shape(options, 3), 12);
    const auto context = test_context(3, tensor::Mode::kTraining);
    const Outcome ours = run_ours(options, parameters, images, gradient, context, at::kDouble, group_of_one());
    const Outcome expected = run_reference(options, parameters, images, gradient, context, at::kDouble);
    CHECK(relative_error(ours.output, expected.output) <= kDoubleBound);
    const WorstError worst = worst_gradient_error(ours.gradients, expected.gradients);
    CAPTURE(worst.name);
    CHECK(worst.error <= kDoubleBound);
  }
}
