// The time model's parts on other people's trainings: GPTs on A100s of V. Korthikanti et al., "Reducing activation
// recomputation in large transformer models", arXiv 2205.05198, tables 3 and 5, figures 1 and 7; docs/workload.md has
// the figures. What this program does not train is described here alone: vocabulary, cross-entropy, causal attention
// whose scores and masks are stored, sequence parallelism, interleaved stages and an unsharded Adam.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parallel/pipeline/message_plan.h"
#include "src/plan/step_work.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using doctest::Approx;

namespace {

struct Gpt {
  std::string name;
  double heads, width, layers, stages, chunks, batch, micro_batch;
  double full_s, selective_s;                                                   // a step, measured
  double model_gib, activations_gib, selective_gib;                             // of the first stage, by its equations
  double sequence_percent, only_selective_percent, both_percent, full_percent;  // of activations_gib
};

constexpr double kTokens = 2048, kVocabulary = 51200, kTensor = 8;
constexpr double kGiB = 1 << 30;
const std::vector<Gpt> kGpts = {
    {"22B", 64, 6144, 48, 1, 1, 4, 4, 1.42, 1.10, 45.56, 59.25, 9.56, 66.84, 49.42, 16.18, 7.64},
    {"175B", 96, 12288, 96, 8, 3, 64, 1, 18.13, 13.75, 45.56, 66.84, 12.35, 62.04, 56.53, 18.49, 8.71},
    {"530B", 128, 20480, 105, 35, 3, 280, 1, 49.05, 37.83, 31.64, 114.02, 23.08, 58.31, 62.04, 20.27, 9.42},
    {"1T", 160, 25600, 128, 64, 1, 512, 1, 94.42, 71.49, 32.96, 131.25, 26.56, 58.31, 62.04, 20.27, 9.42}};

enum class Keep { kAll, kAllInSequence, kSelective, kSelectiveInSequence, kInput };

// ---- memory
// ----------------------------------------------------------------------------------------------------------

// Bytes that a layer keeps of a micro-batch for backward, tensor by tensor: fp16, masks of one byte.
double kept_of_layer(const Gpt& gpt, Keep keep) {
  const double stream = kTokens * gpt.micro_batch * gpt.width;
  const double scores = gpt.micro_batch * gpt.heads * kTokens * kTokens / kTensor;
  if (keep == Keep::kInput) return 2 * stream;
  const bool is_split = keep == Keep::kAllInSequence || keep == Keep::kSelectiveInSequence;
  const double outside = is_split ? stream / kTensor : stream;  // where all tensor ranks have the same without it
  double bytes = 0.0;
  bytes += 2 * 2 * outside;             // inputs of two norms
  bytes += 2 * 2 * outside;             // inputs of qkv and of the MLP
  bytes += 2 * outside;                 // masks of two dropouts
  bytes += 3 * 2 * stream / kTensor;    // q, k, v
  bytes += 2 * stream / kTensor;        // input of the projection
  bytes += (8 + 8) * stream / kTensor;  // inputs of GELU and of the second product
  if (keep == Keep::kAll || keep == Keep::kAllInSequence) {
    bytes += (2 + 2 + 1) * scores;  // outputs of softmax and dropout, and the mask
  }
  return bytes;
}

// Of the first stage, which has so many micro-batches in flight that all layers are kept once, and of interleaved
// chunks some more.
double kept(const Gpt& gpt, Keep keep) {
  const double in_flight = gpt.chunks > 1 ? 1.0 + (gpt.stages - 1) / (gpt.stages * gpt.chunks) : 1.0;
  return gpt.layers * in_flight * kept_of_layer(gpt, keep);
}

// ---- time
// ------------------------------------------------------------------------------------------------------------

// What one A100 does with its shapes. Tensor cores compute tiles of 128 x 256 results, 108 at a time: what is left of
// the last ones is lost (NVIDIA, "Matrix multiplication background user's guide", tile and wave quantization).
struct Fitted {
  double products;  // share of 312 TFLOP/s
  double memory;    // share of 2.039 TB/s
};
constexpr double kBus = 230e9;  // bytes/s of an all-reduce over the eight GPUs of a DGX A100 (nccl-tests)

double tiles_in_use(double m, double n) {
  constexpr double kAtATime = 108;
  const double tiles = std::ceil(m / 128) * std::ceil(n / 256);
  return tiles / (kAtATime * std::ceil(tiles / kAtATime));
}

// Exact at the sizes of these works.
RateTables rates_of(const std::vector<KernelWork>& works, const Fitted& fitted) {
  std::vector<std::set<double>> sizes(3);
  for (const KernelWork& work : works) {
    for (size_t i = 0; work.kind == "product_forward" && i < sizes.size(); ++i) {
      sizes[i].insert(work.sizes[i]);
    }
  }
  RateTable products{{}, {}, ""};
  for (const auto& points : sizes) {
    products.axes.push_back({"", {points.begin(), points.end()}});
  }
  for (const double m : sizes[0]) {
    for (size_t k = 0; k < sizes[1].size(); ++k) {
      for (const double n : sizes[2]) {
        products.rates.push_back(fitted.products * 312e12 * tiles_in_use(m, n));
      }
    }
  }
  return {{"product_forward", products}, {"stream", {{{"bytes", {1.0}}}, {fitted.memory * 2.039e12}, ""}}};
}

KernelWork product(double m, double k, double n, double batch = 1) {
  return {"product_forward", {m * batch, k, n}, 2 * m * k * n * batch};  // of equal ones tiles fill up
}
KernelWork stream(double bytes) {
  return {"stream", {bytes}, bytes};
}

struct Layer {
  std::vector<KernelWork> forward, backward;
  double sums = 0.0;  // seconds in forward
};

// On one rank; `is_full`: recomputed whole, without sequence parallelism; else attention alone, with it.
Layer layer_of(const Gpt& gpt, bool is_full) {
  const double tokens = kTokens * gpt.micro_batch, h = gpt.width, d = h / gpt.heads;
  const double heads = gpt.micro_batch * gpt.heads / kTensor;
  const double outside = 2 * tokens * h / (is_full ? 1 : kTensor), inside = 2 * tokens * h / kTensor;
  const double scores = 2 * heads * kTokens * kTokens;
  Layer layer;
  const std::vector<std::vector<double>> linears = {{tokens, h, 3 * h / kTensor},
                                                    {tokens, h / kTensor, h},
                                                    {tokens, h, 4 * h / kTensor},
                                                    {tokens, 4 * h / kTensor, h}};
  for (const auto& one : linears) {
    const double m = one[0], k = one[1], n = one[2];
    layer.forward.push_back(product(m, k, n));
    layer.backward.push_back(product(m, n, k));
    layer.backward.push_back(product(k, m, n));
  }
  // Scores and values; softmax and dropout read and write, and a mask.
  const std::vector<KernelWork> attention = {product(kTokens, d, kTokens, heads), product(kTokens, kTokens, d, heads),
                                             stream(4.5 * scores)};
  layer.forward.insert(layer.forward.end(), attention.begin(), attention.end());
  for (const auto& one :
       {product(kTokens, d, kTokens, heads), product(kTokens, kTokens, d, heads), product(kTokens, kTokens, d, heads),
        product(kTokens, kTokens, d, heads), stream(5.5 * scores)}) {
    layer.backward.push_back(one);
  }
  // Norms; dropouts with the residual; GELU; q, k and v into their order.
  layer.forward.push_back(stream((2 * 2 + 2 * 3.5) * outside + (2 * 4 + 2 * 3) * inside));
  layer.backward.push_back(stream((2 * 3 + 2 * 2.5) * outside + (3 * 4 + 3) * inside));
  const auto& again = is_full ? layer.forward : attention;
  layer.backward.insert(layer.backward.end(), again.begin(), again.end());
  layer.sums = 2 * (2 * tokens * h) * bus_factor("all_reduce", kTensor) / kBus;  // or gather and scatter, as long
  return layer;
}

double step_seconds(const Gpt& gpt, bool is_full, const Fitted& fitted) {
  const Layer layer = layer_of(gpt, is_full);
  const double tokens = kTokens * gpt.micro_batch, part = kVocabulary / kTensor;
  // The head's products three times, and the cross-entropy of its part of the vocabulary.
  const std::vector<KernelWork> head = {product(tokens, gpt.width, part), product(tokens, part, gpt.width),
                                        product(gpt.width, tokens, part), stream(16 * tokens * part)};
  std::vector<KernelWork> all = layer.forward;
  all.insert(all.end(), layer.backward.begin(), layer.backward.end());
  all.insert(all.end(), head.begin(), head.end());
  const RateTables rates = rates_of(all, fitted);
  const double layers = gpt.layers / gpt.stages;
  const double forward = layers * (seconds_of(layer.forward, rates) + layer.sums);
  const double backward = layers * (seconds_of(layer.backward, rates) + layer.sums * (is_full ? 2 : 1));
  const double head_seconds = seconds_of(head, rates);

  const int stages = static_cast<int>(gpt.stages), micro_batches = static_cast<int>(gpt.batch / gpt.micro_batch);
  const auto timeline = pipeline::time_actions(
      pipeline::make_schedule("1f1b", stages, micro_batches),
      [&](const pipeline::Action& action) {
        const bool is_forward = action.kind == pipeline::ActionKind::kForward;
        const double third = action.stage == stages - 1 ? head_seconds / 3 : 0.0;
        return is_forward ? forward + third : backward + 2 * third;
      },
      0.0);
  double end = 0.0;
  for (const auto& stage : timeline) {
    end = std::max(end, stage.back().finish);
  }
  const double busy = micro_batches * (forward + backward + head_seconds);  // of the last stage
  // Interleaved stages wait for parts of each other (arXiv 2104.04473, section 2.2).
  const double passes = busy + (end - busy) / gpt.chunks;
  // Adam with fp32 master weights, unscaling, norm, clipping and the copy to fp16: bytes of each parameter.
  const double parameters =
      12 * gpt.width * gpt.width * layers / kTensor + (kVocabulary + kTokens) * gpt.width / kTensor;
  return passes + seconds_of({stream(58 * parameters)}, rates);
}

// The efficiencies that come nearest to both times of a model. Memory between what plain copies and what small kernels
// of that time reached.
Fitted fitted_to(const Gpt& gpt) {
  Fitted best{};
  double least = 1e9;
  for (double products = 0.4; products < 1.0; products += 0.002) {
    for (double memory = 0.7; memory < 0.905; memory += 0.05) {
      const Fitted one{products, memory};
      const double miss = std::hypot(step_seconds(gpt, true, one) / gpt.full_s - 1.0,
                                     step_seconds(gpt, false, one) / gpt.selective_s - 1.0);
      if (miss < least) {
        least = miss;
        best = one;
      }
    }
  }
  return best;
}

}  // namespace

TEST_CASE("published GPTs: memory is the paper's, tensor by tensor") {
  for (const Gpt& gpt : kGpts) {
    CAPTURE(gpt.name);
    const double parameters = 12 * gpt.layers * gpt.width * gpt.width / kTensor / gpt.stages;
    CHECK(18 * parameters / kGiB == Approx(gpt.model_gib).epsilon(2e-4));
    const double all = kept(gpt, Keep::kAll);
    CHECK(all / kGiB == Approx(gpt.activations_gib).epsilon(2e-4));
    CHECK(kept(gpt, Keep::kSelectiveInSequence) / kGiB == Approx(gpt.selective_gib).epsilon(2e-3));
    // Read off a figure.
    for (const auto& [keep, percent] :
         {std::pair(Keep::kAllInSequence, gpt.sequence_percent),
          std::pair(Keep::kSelective, gpt.only_selective_percent),
          std::pair(Keep::kSelectiveInSequence, gpt.both_percent), std::pair(Keep::kInput, gpt.full_percent)}) {
      CHECK(std::abs(100 * kept(gpt, keep) / all - percent) < 0.15);
    }
  }
}

TEST_CASE("published GPTs: steps are within 10 % of those measured, fitted to the smallest model alone") {
  const Fitted fitted = fitted_to(kGpts.front());
  INFO("products at ", fitted.products, " of the peak in tiles, memory at ", fitted.memory);
  for (const Gpt& gpt : kGpts) {
    CAPTURE(gpt.name);
    const double full = step_seconds(gpt, true, fitted), selective = step_seconds(gpt, false, fitted);
    INFO(full, " s, published ", gpt.full_s, "; ", selective, " s, published ", gpt.selective_s);
    CHECK(std::abs(full / gpt.full_s - 1.0) < 0.1);
    CHECK(std::abs(selective / gpt.selective_s - 1.0) < 0.1);
  }
}
