// The attention kernels against LibTorch's plain attention with an explicit mask.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "src/kernels/attention/attend.h"
#include "src/kernels/attention/attention_rows.h"
#include "src/kernels/attention/blocked_attention.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/small_product.h"
#include "tests/support/compare.h"
#include "tests/support/contains.h"
#include "tests/support/group_of_one.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::AttentionDropout;
using kernels::DropKey;
using kernels::DropSite;

namespace {

struct AttentionShape {
  int64_t samples, tokens, heads, head_dim;
};

// One token and two, less than a block, several blocks of both kinds and several tasks, odd numbers of tokens; head
// widths from odd to wide.
const std::vector<AttentionShape> kAttentionShapes = {{2, 1, 1, 8},    {2, 2, 3, 5},    {2, 15, 3, 3},
                                                      {1, 33, 2, 80},  {3, 197, 2, 64}, {1, 129, 1, 88},
                                                      {1, 513, 2, 48}, {1, 513, 1, 5},  {1, 1100, 1, 48}};

constexpr auto kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

constexpr int64_t kFirstHead = 2;

AttentionDropout make_dropout(const AttentionShape& shape, double rate) {
  return {DropKey{rate, 3, DropSite::kAttention}, test_context(shape.samples, Mode::kTraining), kFirstHead,
          shape.tokens};
}

// The mask [B, h, N, N] draw by draw.
at::Tensor explicit_mask(const AttentionShape& shape, double rate) {
  const auto context = test_context(shape.samples, Mode::kTraining);
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
at::Tensor make_qkv(const AttentionShape& shape) {
  return normal_tensor({shape.samples, shape.tokens, 3 * shape.heads * shape.head_dim}, 21) * 1.5;
}

at::Tensor make_dout(const AttentionShape& shape) {
  return normal_tensor({shape.samples, shape.tokens, shape.heads * shape.head_dim}, 22);
}

// What an attention of this type is given, in double: the exact result of these is what it is measured against.
struct Given {
  at::Tensor qkv;
  at::Tensor dout;
};

Given given_to(const AttentionShape& shape, at::ScalarType type) {
  return {make_qkv(shape).to(type).to(at::kDouble), make_dout(shape).to(type).to(at::kDouble)};
}

using Mask = std::optional<at::Tensor>;

Result reference(const Given& given, const AttentionShape& shape, double rate, const Mask& mask) {
  return run(given.qkv, given.dout, [&](const at::Tensor& qkv) {
    const auto [q, k, v] = kernels::split_heads(qkv, shape.heads);
    return kernels::merge_heads(std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, {}, rate, false, mask)));
  });
}

// Relative to the largest element of each tensor.
//  fp32: products over up to 1100 terms, exponents of size 20 off by a unit of 6e-8 each, and the exponential itself.
//  bf16, unit 2^-9 (4e-3 between numbers): the weights are rounded once as operands, and so is the result: by random
//    signs less than 2 units. In backward the gradients of the scores are rounded once as operands, and the gradient
//    once; delta has the rounding of the result of forward, which counts a few times where dp and delta nearly cancel:
//    less than 6 units.
//  fp16, unit 2^-11: the result is rounded once; in backward the result in delta, as above, and the gradient: 4 units.
double forward_bound(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 1e-13;
    case at::kFloat:
      return 1e-5;
    case at::kBFloat16:
      return 2.0 * 0x1p-9;
    default:
      return 1.1 * 0x1p-11;
  }
}

double backward_bound(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return 6.0 * 0x1p-9;
    case at::kHalf:
      return 4.0 * 0x1p-11;
    default:
      return forward_bound(type);
  }
}

// The gradients of q, k and v by themselves. Those of q and k are zero where there is but one key: there is but noise,
// which is measured against that of v.
void check(const Result& ours, const Result& expected, at::ScalarType type) {
  CHECK((ours.out.scalar_type() == type));
  CHECK((ours.gradient.scalar_type() == type));
  CHECK(relative_error(ours.out, expected.out) <= forward_bound(type));
  const auto parts = ours.gradient.chunk(3, 2);
  const auto exact = expected.gradient.chunk(3, 2);
  for (size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    if (ours.out.size(1) == 1 && i < 2) {
      const double largest = expected.gradient.abs().max().item<double>();
      CHECK(parts[i].to(at::kDouble).abs().max().item<double>() <= backward_bound(type) * largest);
    } else {
      CHECK(relative_error(parts[i], exact[i]) <= backward_bound(type));
    }
  }
}

// Each kernel of `kernels`, called with (qkv, heads), in each type, against the exact attention.
template <class... Kernels>
void check_kernels(const AttentionShape& shape, double rate, const Kernels&... kernels) {
  const Mask mask = rate > 0.0 ? Mask(explicit_mask(shape, rate)) : Mask();
  for (const auto type : kTypes) {
    CAPTURE(shape.tokens);
    CAPTURE(shape.head_dim);
    CAPTURE(std::string(c10::toString(type)));
    const Given given = given_to(shape, type);
    const Result expected = reference(given, shape, rate, mask);
    const at::Tensor qkv = given.qkv.to(type);
    const at::Tensor dout = given.dout.to(type);
    (check(run(qkv, dout, kernels), expected, type), ...);
  }
}

constexpr double kDoubleBound = 1e-13;

}  // namespace

TEST_CASE("attention: without dropout, in every type, ours is LibTorch's plain attention in fp64") {
  for (const AttentionShape& shape : kAttentionShapes) {
    check_kernels(
        shape, 0.0, [&](const at::Tensor& x) { return kernels::blocked_attention(x, shape.heads, {}); },
        [&](const at::Tensor& x) { return kernels::attend(x, shape.heads, {}); });
  }
}

TEST_CASE("attention: LibTorch's fused attention of the types it may be chosen for") {
  for (const AttentionShape& shape : kAttentionShapes) {
    CAPTURE(shape.tokens);
    for (const auto type : {at::kDouble, at::kFloat}) {
      const Given given = given_to(shape, type);
      check(run(given.qkv.to(type), given.dout.to(type),
                [&](const at::Tensor& x) { return kernels::fused_attention(x, shape.heads); }),
            reference(given, shape, 0.0, {}), type);
    }
  }
}

TEST_CASE("attention: with dropout, in every type, ours is the plain attention with the mask draw by draw") {
  constexpr double kRate = 0.3;
  for (const AttentionShape& shape : kAttentionShapes) {
    const AttentionDropout dropout = make_dropout(shape, kRate);
    check_kernels(
        shape, kRate, [&](const at::Tensor& x) { return kernels::blocked_attention(x, shape.heads, dropout); },
        [&](const at::Tensor& x) { return kernels::masked_attention(x, shape.heads, dropout); });
  }
}

TEST_CASE("attention: scores of any size give no overflow") {
  const AttentionShape shape{1, 600, 1, 16};
  const at::Tensor qkv = (make_qkv(shape) * 12.0).to(at::kFloat);  // scores of several hundreds
  const at::Tensor dout = make_dout(shape).to(at::kFloat);
  const auto attention = [&](const at::Tensor& x) { return kernels::blocked_attention(x, 1, {}); };
  const Result ours = run(qkv, dout, attention);
  const Result exact = run(qkv.to(at::kDouble), dout.to(at::kDouble), attention);
  // Scores near 500 are rounded by 3e-5, and so are the weights.
  CHECK(relative_error(ours.out, exact.out) <= 1e-3);
  CHECK(relative_error(ours.gradient, exact.gradient) <= 1e-3);
}

TEST_CASE("attention: the bits do not depend on the number of threads") {
  const AttentionShape shape{2, 1101, 2, 16};
  const AttentionDropout dropout = make_dropout(shape, 0.1);
  const int before = at::get_num_threads();
  for (const auto type : kTypes) {
    CAPTURE(std::string(c10::toString(type)));
    const auto compute = [&](int threads) {
      at::set_num_threads(threads);
      return run(make_qkv(shape).to(type), make_dout(shape).to(type),
                 [&](const auto& x) { return kernels::blocked_attention(x, shape.heads, dropout); });
    };
    const Result one = compute(1);
    for (const int threads : {2, 3}) {
      const Result several = compute(threads);
      CHECK(one.out.equal(several.out));
      CHECK(one.gradient.equal(several.gradient));
    }
  }
  at::set_num_threads(before);
}

TEST_CASE("attention: the bits of a sample and head do not depend on the others") {
  const AttentionShape shape{2, 300, 3, 16};
  for (const auto type : kTypes) {
    CAPTURE(std::string(c10::toString(type)));
    const at::Tensor qkv = make_qkv(shape).to(type);
    const at::Tensor dout = make_dout(shape).to(type);
    const auto attention = [](int64_t heads) {
      return [heads](const at::Tensor& x) { return kernels::blocked_attention(x, heads, {}); };
    };
    const Result all = run(qkv, dout, attention(3));
    const auto head = [](const at::Tensor& x, int64_t parts) {  // the middle one of the last sample
      return x.view({2, 300, parts, 3, 16}).narrow(0, 1, 1).select(3, 1).reshape({1, 300, -1});
    };
    const Result one = run(head(qkv, 3), head(dout, 1), attention(1));
    CHECK(one.out.equal(head(all.out, 1)));
    CHECK(one.gradient.equal(head(all.gradient, 3)));
  }
}

TEST_CASE("attention: what is not finite in q, k, v or the gradient stays so in both directions") {
  const AttentionShape shape{1, 70, 1, 8};
  const double infinity = std::numeric_limits<double>::infinity();
  const auto is_finite = [](const at::Tensor& x) { return x.isfinite().all().item<bool>(); };
  const auto attention = [](const at::Tensor& x) { return kernels::blocked_attention(x, 1, {}); };
  for (const auto type : kTypes) {
    for (const double value : {infinity, -infinity, std::nan("")}) {
      for (int64_t part = 0; part < 3; ++part) {
        CAPTURE(std::string(c10::toString(type)));
        CAPTURE(value);
        CAPTURE(part);
        const at::Tensor qkv = make_qkv(shape).to(type);
        const at::Tensor dout = make_dout(shape).to(type);
        CHECK(is_finite(run(qkv, dout, attention).gradient));
        qkv[0][17][part * 8 + 2] = value;
        const Result result = run(qkv, dout, attention);
        CHECK(!is_finite(result.out));
        CHECK(!is_finite(result.gradient));
      }
      const at::Tensor dout = make_dout(shape).to(type);
      dout[0][17][2] = value;
      CHECK(!is_finite(run(make_qkv(shape).to(type), dout, attention).gradient));
    }
  }
}

TEST_CASE("attention: an fp16 gradient too large for the type is infinite") {
  const at::Tensor dout = at::full({1, 300, 8}, 6e4, at::TensorOptions(at::kHalf));
  // One key that all queries look at: the gradient of its value is 300 times that.
  at::Tensor qkv = at::zeros({1, 300, 24}, at::TensorOptions(at::kHalf));
  qkv.narrow(2, 0, 8).fill_(8.0);
  qkv[0][5].narrow(0, 8, 8).fill_(8.0);
  const Result result = run(qkv, dout, [](const at::Tensor& x) { return kernels::blocked_attention(x, 1, {}); });
  CHECK(result.out.isfinite().all().item<bool>());
  CHECK(result.gradient[0][5].narrow(0, 16, 8).isinf().all().item<bool>());
}

TEST_CASE("attention: fp32 exponentials are exact to three units") {
  double worst = 0.0;
  for (double x = -86.0; x <= 0.0; x += 0.0137) {
    float scores[2] = {0.0f, static_cast<float>(x)};
    float maximum = -std::numeric_limits<float>::infinity();
    float sum = 0.0f;
    float correction = 0.0f;
    kernels::update_softmax({1, 2, 2, scores, 1.0f, scores, &maximum, &sum, &correction});
    CHECK(maximum == 0.0f);
    CHECK(sum == scores[0] + scores[1]);
    worst = std::max(worst, std::abs(scores[1] / std::exp(static_cast<double>(static_cast<float>(x))) - 1.0));
  }
  CHECK(worst < 3e-7);
}

TEST_CASE("attention: the kernel is chosen by type and device, and said") {
  const auto text = [](at::ScalarType type, bool with_dropout) {
    return kernels::attention_kernel_text(at::kCPU, type, with_dropout);
  };
  const bool has_kernel = kernels::has_block_kernel();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    CHECK(text(type, true).starts_with("ours"));
    CHECK(text(type, false).starts_with(has_kernel ? "ours" : "LibTorch's"));
  }
  CHECK(text(at::kDouble, true).starts_with("ours"));
  CHECK(text(at::kDouble, false).starts_with("LibTorch's"));
  CHECK(contains(text(at::kHalf, true), "fp16 is not multiplied"));
  const std::string why_not = kernels::why_no_bf16_block_kernel();
  CHECK(why_not.empty() == kernels::has_bf16_block_kernel());
  CHECK(contains(text(at::kBFloat16, true), why_not.empty() ? "block kernel in bf16" : why_not.c_str()));
  const c10::Device gpu(at::kCUDA, 0);
  CHECK((kernels::choose_attention_kernel(gpu, at::kHalf, false) == kernels::AttentionKernel::kFused));
  CHECK((kernels::choose_attention_kernel(gpu, at::kHalf, true) == kernels::AttentionKernel::kMasked));
  CHECK(contains(kernels::attention_kernel_text(gpu, at::kHalf, true), "in fp32"));
}

TEST_CASE("attention: the model with attention dropout is the reference with masks draw by draw") {
  for (auto options : {small_forecaster(), small_classifier(model::Pooling::kToken)}) {
    options.attention_dropout = 0.25;
    options.dropout = 0.1;
    const auto parameters = test_parameters(options);
    const at::Tensor images = test_images(options, 3);
    const at::Tensor gradient = normal_tensor(output_shape(options, 3), 12);
    const auto context = test_context(3, Mode::kTraining);
    const Outcome ours = run_ours(options, parameters, images, gradient, context, at::kDouble, group_of_one());
    const Outcome expected = run_reference(options, parameters, images, gradient, context, at::kDouble);
    CHECK(relative_error(ours.output, expected.output) <= kDoubleBound);
    const WorstError worst = worst_gradient_error(ours.gradients, expected.gradients);
    CAPTURE(worst.name);
    CHECK(worst.error <= kDoubleBound);
  }
}
