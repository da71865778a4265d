// FLOP of each product; bytes that each node of a block keeps and takes, summed over the blocks.
#include "model/vit_costs.h"

#include <ATen/OpMathType.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "src/kernels/attention/attend.h"

namespace vit_hybrid::model {

namespace {

double product(std::initializer_list<int64_t> factors) {
  double result = 1.0;
  for (const int64_t factor : factors) {
    result *= static_cast<double>(factor);
  }
  return result;
}

double embedding_cost(const VitOptions& options) {
  return product({2, options.num_patches(), options.input_grid().num_features(), options.embed_dim});
}

// qkv and projection, the two products of attention, fc1 and fc2.
double block_cost(const VitOptions& options) {
  const int64_t tokens = options.num_tokens();
  const int64_t dim = options.embed_dim;
  return product({8, tokens, dim, dim}) + product({4, tokens, tokens, dim}) +
         product({4, tokens, dim, options.mlp_hidden});
}

double head_cost(const VitOptions& options) {
  if (options.task == Task::kClassify) {
    return product({2, options.embed_dim, options.num_classes});
  }
  return product({2, options.num_tokens(), options.embed_dim, options.output_grid().num_features()});
}

// Bytes a token of the parts of a block.
struct BlockBytes {
  BlockBytes(const VitOptions& options, TensorPlace tensor, at::ScalarType type)
      : size(static_cast<int64_t>(at::elementSize(type))),
        number(static_cast<int64_t>(at::elementSize(at::toOpMathType(type)))),
        dim(options.embed_dim * size),
        heads(Partition(options.num_heads, tensor.size).part(tensor.rank).size()),
        attention(heads * options.head_dim() * size),
        hidden(Partition(options.mlp_hidden, tensor.size).part(tensor.rank).size() * size),
        output_mask(options.dropout > 0.0 ? options.embed_dim : 0),
        hidden_mask(options.dropout > 0.0 ? hidden / size : 0),
        has_parts(kernels::choose_attention_kernel(at::kCPU, type, options.attention_dropout > 0.0) ==
                  kernels::AttentionKernel::kFused) {}

  // Bytes a token that the graph of a block keeps between forward and backward. With D features, A = heads x d and H of
  // the attention's and the MLP's features on this rank, in elements of `type`:
  //   kNone       its input, both norms' output and the first sum (4 D), qkv (3 A), the attention's output (A), the
  //               input and the output of GELU (2 H): 16 D for one rank and H = 4 D
  //   kSelective  without qkv and the input of GELU: 9 D
  //   kFull       its input: D
  // Beside them, unless kFull: two numbers a norm and one a head (fp32 for half-length types), and a byte an element
  // that is dropped or kept by dropout: 2 D + H.
  int64_t kept(Recompute recompute) const {
    if (recompute == Recompute::kFull) {
      return dim;
    }
    const int64_t again = recompute == Recompute::kSelective ? 3 * attention + hidden : 0;
    return 4 * dim + 4 * attention + 2 * hidden + (4 + heads) * number + 2 * output_mask + hidden_mask - again;
  }

  // What its backward takes at most beside what it keeps then, which with kFull is what it keeps without recompute.
  int64_t working(Recompute recompute, bool is_last) const {
    const bool again = recompute == Recompute::kSelective;
    // fc2: the gradients of the block's output, of its own output and of its input. Later GELU and fc1: the first,
    // those of GELU's output and input, and of fc1's input, beside GELU's input if that is computed again; GELU's
    // output is gone.
    const int64_t fc2 = 2 * dim + hidden - output_mask;
    const int64_t gelu = 2 * dim + hidden + (again ? hidden : 0) - output_mask - hidden_mask;
    const int64_t outside = recompute == Recompute::kFull ? dim : 0;
    // At the end of the forward that kFull does again: that gradient, fc2's output, and what dropout makes of it.
    const int64_t drop = outside > 0 && output_mask > 0 ? 3 * dim : 0;
    return std::max({fc2, gelu, drop, working_in_attention(recompute, is_last)});
  }

  // Then: the gradients of the first sum, of its output, and of qkv, that before also in parts by LibTorch's kernel;
  // all that the MLP kept is gone, and the sum.
  int64_t working_in_attention(Recompute recompute, bool is_last) const {
    const bool again = recompute == Recompute::kSelective;
    const int64_t gone = 2 * dim + (again ? 1 : 2) * hidden;
    // The gradient of the block's output stays outside of the graph that kFull made again, or is another stage's
    // message.
    const int64_t outside = recompute == Recompute::kFull || !is_last ? dim : 0;
    return dim + (has_parts ? 7 : 4) * attention + (again ? 3 * attention : 0) - gone + outside;
  }

  // What the forward of kFull takes beside the block's input, which has a graph until it ends: with dropout at GELU's
  // output, which that leaves behind, or at the end fc2's output, and what dropout makes of it.
  int64_t forward_of_full() const {
    const int64_t in_mlp = hidden_mask > 0 ? hidden - output_mask : 0;
    return kept(Recompute::kNone) - dim + std::max(in_mlp, output_mask > 0 ? 2 * dim : dim);
  }

  int64_t size;
  int64_t number;  // bytes of a statistic
  int64_t dim;
  int64_t heads;
  int64_t attention;
  int64_t hidden;
  int64_t output_mask;  // of dropout after fc2, and as much after the projection
  int64_t hidden_mask;
  bool has_parts;  // of attention's gradient
};

// What the embedding's backward takes of so many samples: the gradient of the tokens, and with dropout, whose mask is
// gone by then, what that leaves of it. Then its sum over the samples, of a copy in fp32 for half-length types, or
// later the gradient without a class token's row and the patches again, beside the sum.
int64_t embedding_bytes(const VitOptions& options, const BlockBytes& block, int64_t samples) {
  const int64_t tokens = options.num_tokens();
  const int64_t dropped = options.dropout > 0.0 ? tokens * (block.dim - options.embed_dim) : 0;
  const int64_t row = tokens * options.embed_dim * block.number;
  const int64_t copy = block.number == block.size ? 0 : row;
  const int64_t projected = options.has_class_token() ? options.num_patches() * block.dim : 0;
  const int64_t patches = options.num_patches() * options.input_grid().num_features() * block.size;
  return samples * (tokens * block.dim + dropped + std::max(copy, projected + patches)) + row;
}

// Of a sample, by the blocks' graphs and, a byte an element, the mask of dropout after the embedding.
int64_t kept_before_head(const VitOptions& options, Range units, const BlockBytes& block, Recompute recompute) {
  const int64_t mask = units.begin == 0 && options.dropout > 0.0 ? options.embed_dim : 0;
  return options.num_tokens() * (num_blocks(options, units) * block.kept(recompute) + mask);
}

struct HeadBytes {
  int64_t kept = 0;
  int64_t working = 0;  // beside what was kept, most of it in the loss
};

// Of a sample.
HeadBytes head_bytes(const VitOptions& options, const BlockBytes& block) {
  if (options.task == Task::kClassify) {
    return {2 * block.dim + 3 * options.num_classes * block.number, options.num_classes * block.number};
  }
  const int64_t prediction = options.num_patches() * options.output_grid().num_features() * block.size;
  const int64_t row = block.dim * options.num_tokens();
  // The loss's gradient beside the prediction, or the head's input's gradient in its stead.
  return {2 * row + 2 * block.number * options.num_tokens() + prediction, std::max(prediction, row)};
}

}  // namespace

std::vector<double> unit_costs(const VitOptions& options) {
  std::vector<double> costs(static_cast<size_t>(options.num_units()), block_cost(options));
  costs.front() = embedding_cost(options);
  costs.back() = head_cost(options);
  return costs;
}

double train_flops_per_sample(const VitOptions& options) {
  const auto costs = unit_costs(options);
  // The gradient of the image is not computed: the embedding's backward has one product, not two.
  return 3.0 * std::accumulate(costs.begin() + 1, costs.end(), 0.0) + 2.0 * costs.front();
}

int64_t num_blocks(const VitOptions& options, Range units) {
  return std::max<int64_t>(0, std::min(units.end, options.depth + 1) - std::max<int64_t>(units.begin, 1));
}

std::vector<LinearLayer> linear_layers(const VitOptions& options, Range units, TensorPlace tensor, int64_t samples) {
  const int64_t dim = options.embed_dim;
  const int64_t tokens = samples * options.num_tokens();
  const int64_t patches = samples * options.num_patches();
  const int64_t heads = Partition(options.num_heads, tensor.size).part(tensor.rank).size();
  const int64_t hidden = Partition(options.mlp_hidden, tensor.size).part(tensor.rank).size();
  const int64_t width = heads * options.head_dim();
  std::vector<LinearLayer> layers;
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    if (unit == 0) {
      layers.push_back({LinearRole::kPatches, patches, options.input_grid().num_features(), dim});
    } else if (unit <= options.depth) {
      layers.push_back({LinearRole::kQkv, tokens, dim, 3 * width});
      layers.push_back({LinearRole::kProjection, tokens, width, dim});
      layers.push_back({LinearRole::kFc1, tokens, dim, hidden});
      layers.push_back({LinearRole::kFc2, tokens, hidden, dim});
    } else if (options.task == Task::kForecast) {
      layers.push_back({LinearRole::kFieldHead, patches, dim, options.output_grid().num_features()});
    } else {
      layers.push_back({LinearRole::kClassHead, samples, dim, options.num_classes});
    }
  }
  return layers;
}

ActivationBytes activation_bytes(const VitOptions& options, Range units, TensorPlace tensor, Recompute recompute,
                                 at::ScalarType type, const HeldSamples& held) {
  const BlockBytes block(options, tensor, type);
  const int64_t tokens = options.num_tokens();
  const int64_t blocks = num_blocks(options, units);
  int64_t kept = kept_before_head(options, units, block, recompute);
  int64_t working = 0, in_attention = 0;
  if (blocks > 0) {
    const int64_t again = recompute == Recompute::kFull ? block.kept(Recompute::kNone) - block.dim : 0;
    const bool is_last = units.end == options.num_units();
    working = tokens * (block.working(recompute, is_last) + again);
    in_attention = tokens * (block.working_in_attention(recompute, is_last) + again);
  }
  if (units.end == options.num_units()) {
    const HeadBytes head = head_bytes(options, block);
    kept += head.kept;
    working = std::max(head.working, working - head.kept);  // what the head kept is gone when a block's backward runs
    in_attention -= head.kept;
  }
  const int64_t beside = held.in_flight * kept + held.received_early * tokens * block.dim;
  ActivationBytes bytes{beside + held.in_backward * working, blocks > 0 ? beside + held.in_backward * in_attention : 0,
                        0};
  if (units.begin > 0 || held.in_backward == 0) {
    return bytes;
  }
  // What blocks kept is gone when the embedding's backward runs.
  const int64_t gone = held.in_backward * blocks * tokens * block.kept(recompute);
  bytes.in_embedding = beside + embedding_bytes(options, block, held.in_backward) - gone;
  bytes.peak = std::max(bytes.peak, bytes.in_embedding);
  return bytes;
}

int64_t forward_activation_bytes(const VitOptions& options, Range units, TensorPlace tensor, Recompute recompute,
                                 at::ScalarType type, int64_t samples) {
  if (recompute != Recompute::kFull || num_blocks(options, units) == 0) {
    return 0;
  }
  const BlockBytes block(options, tensor, type);
  return samples *
         (kept_before_head(options, units, block, recompute) + options.num_tokens() * block.forward_of_full());
}

}  // namespace vit_hybrid::model
