// The reference network; the only file of the tests that includes all of torch.
#include "tests/support/reference_vit.h"

#include <torch/nn.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "src/base/random.h"

namespace vit_hybrid::testing {

namespace {

using model::VitOptions;
using tensor::StepContext;

// Numbers of the sites as the model's keys have them: what is compared is the whole function, masks included.
enum Site { kPositions, kProjection, kHidden, kOutput, kAttention, kAttentionPath, kMlpPath };

bool kept(uint32_t bits, double rate) {
  return static_cast<double>(bits) >= std::floor(rate * 4294967296.0);
}

RandomStream stream_of(const StepContext& context, Purpose purpose, int64_t unit, Site site) {
  return RandomStream(context.seed, purpose, static_cast<uint64_t>(context.step),
                      static_cast<uint64_t>(16 * unit + site));
}

// x [B, N, F] with a mask drawn element by element.
torch::Tensor drop(const torch::Tensor& x, double rate, const StepContext& context, int64_t unit, Site site) {
  if (!context.training() || rate == 0.0) {
    return x;
  }
  const auto stream = stream_of(context, Purpose::kDropout, unit, site);
  torch::Tensor mask = torch::zeros(x.sizes(), torch::kDouble);
  auto access = mask.accessor<double, 3>();
  for (int64_t n = 0; n < x.size(0); ++n) {
    for (int64_t t = 0; t < x.size(1); ++t) {
      for (int64_t f = 0; f < x.size(2); ++f) {
        const auto draw = static_cast<uint64_t>(t * x.size(2) + f);
        const auto sample = static_cast<uint64_t>(context.samples[static_cast<size_t>(n)]);
        access[n][t][f] = kept(stream.bits(draw, sample), rate) ? 1.0 / (1.0 - rate) : 0.0;
      }
    }
  }
  return x * mask.to(x.scalar_type());
}

torch::Tensor drop_path(const torch::Tensor& x, double rate, const StepContext& context, int64_t unit, Site site) {
  if (!context.training() || rate == 0.0) {
    return x;
  }
  const auto stream = stream_of(context, Purpose::kDropPath, unit, site);
  torch::Tensor scales = torch::zeros({x.size(0), 1, 1}, torch::kDouble);
  for (int64_t n = 0; n < x.size(0); ++n) {
    const auto sample = static_cast<uint64_t>(context.samples[static_cast<size_t>(n)]);
    scales[n][0][0] = kept(stream.bits(sample), rate) ? 1.0 / (1.0 - rate) : 0.0;
  }
  return x * scales.to(x.scalar_type());
}

// Weights [B, h, N, N] of attention with an explicit mask: draw (head N + query) N + key of the sample.
torch::Tensor drop_attention(const torch::Tensor& weights, double rate, const StepContext& context, int64_t unit) {
  if (!context.training() || rate == 0.0) {
    return weights;
  }
  const auto stream = stream_of(context, Purpose::kAttentionDropout, unit, kAttention);
  torch::Tensor mask = torch::zeros(weights.sizes(), torch::kDouble);
  auto access = mask.accessor<double, 4>();
  const int64_t tokens = weights.size(2);
  for (int64_t n = 0; n < weights.size(0); ++n) {
    const auto sample = static_cast<uint64_t>(context.samples[static_cast<size_t>(n)]);
    for (int64_t h = 0; h < weights.size(1); ++h) {
      for (int64_t q = 0; q < tokens; ++q) {
        for (int64_t k = 0; k < tokens; ++k) {
          const auto draw = static_cast<uint64_t>((h * tokens + q) * tokens + k);
          access[n][h][q][k] = kept(stream.bits(draw, sample), rate) ? 1.0 / (1.0 - rate) : 0.0;
        }
      }
    }
  }
  return weights * mask.to(weights.scalar_type());
}

torch::nn::LayerNorm make_norm(const VitOptions& options) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.embed_dim}).eps(options.norm_eps));
}

struct AttentionModule : torch::nn::Module {
  explicit AttentionModule(const VitOptions& given)
      : options(given),
        qkv(register_module("qkv", torch::nn::Linear(given.embed_dim, 3 * given.embed_dim))),
        proj(register_module("proj", torch::nn::Linear(given.embed_dim, given.embed_dim))) {}

  torch::Tensor forward(const torch::Tensor& x, const StepContext& context, int64_t unit) {
    const auto parts = qkv(x).view({x.size(0), x.size(1), 3, options.num_heads, -1}).permute({2, 0, 3, 1, 4}).unbind(0);
    const double scale = 1.0 / std::sqrt(static_cast<double>(options.head_dim()));
    const auto scores = torch::matmul(parts[0] * scale, parts[1].transpose(-2, -1));
    const auto weights = drop_attention(torch::softmax(scores, -1), options.attention_dropout, context, unit);
    const auto out = torch::matmul(weights, parts[2]).transpose(1, 2).reshape(x.sizes());
    return drop(proj(out), options.dropout, context, unit, kProjection);
  }

  VitOptions options;
  torch::nn::Linear qkv;
  torch::nn::Linear proj;
};

struct MlpModule : torch::nn::Module {
  explicit MlpModule(const VitOptions& given)
      : options(given),
        fc1(register_module("fc1", torch::nn::Linear(given.embed_dim, given.mlp_hidden))),
        fc2(register_module("fc2", torch::nn::Linear(given.mlp_hidden, given.embed_dim))) {}

  torch::Tensor forward(const torch::Tensor& x, const StepContext& context, int64_t unit) {
    const auto hidden = drop(torch::gelu(fc1(x), options.gelu == kernels::GeluKind::kErf ? "none" : "tanh"),
                             options.dropout, context, unit, kHidden);
    return drop(fc2(hidden), options.dropout, context, unit, kOutput);
  }

  VitOptions options;
  torch::nn::Linear fc1;
  torch::nn::Linear fc2;
};

struct BlockModule : torch::nn::Module {
  explicit BlockModule(const VitOptions& options)
      : norm1(register_module("norm1", make_norm(options))),
        attn(register_module("attn", std::make_shared<AttentionModule>(options))),
        norm2(register_module("norm2", make_norm(options))),
        mlp(register_module("mlp", std::make_shared<MlpModule>(options))) {}

  torch::Tensor forward(const torch::Tensor& x, const StepContext& context, int64_t unit, double path_rate) {
    const auto branch = attn->forward(norm1(x), context, unit);
    const auto u = x + drop_path(branch, path_rate, context, unit, kAttentionPath);
    const auto out = mlp->forward(norm2(u), context, unit);
    return u + drop_path(out, path_rate, context, unit, kMlpPath);
  }

  torch::nn::LayerNorm norm1;
  std::shared_ptr<AttentionModule> attn;
  torch::nn::LayerNorm norm2;
  std::shared_ptr<MlpModule> mlp;
};

struct PatchModule : torch::nn::Module {
  explicit PatchModule(const VitOptions& options)
      : proj(register_module("proj",
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(options.in_channels, options.embed_dim,
                                                                        {options.patch_height, options.patch_width})
                                                   .stride({options.patch_height, options.patch_width})))) {}

  torch::nn::Conv2d proj;
};

}  // namespace

struct ReferenceVit::Modules : torch::nn::Module {
  explicit Modules(const VitOptions& given) : options(given) {
    patch_embed = register_module("patch_embed", std::make_shared<PatchModule>(options));
    const bool class_token = options.task == model::Task::kClassify && options.pooling == model::Pooling::kToken;
    const int64_t patches = rows() * columns();
    if (class_token) {
      cls_token = register_parameter("cls_token", torch::zeros({1, 1, options.embed_dim}));
    }
    pos_embed = register_parameter("pos_embed", torch::zeros({1, patches + (class_token ? 1 : 0), options.embed_dim}));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int64_t layer = 0; layer < options.depth; ++layer) {
      blocks->push_back(std::make_shared<BlockModule>(options));
    }
    const bool mean = options.task == model::Task::kClassify && !class_token;
    norm = register_module(mean ? "fc_norm" : "norm", make_norm(options));
    const int64_t outputs = options.task == model::Task::kClassify
                                ? options.num_classes
                                : options.out_channels * options.patch_height * options.patch_width;
    head = register_module(
        "head", torch::nn::Linear(
                    torch::nn::LinearOptions(options.embed_dim, outputs).bias(options.task == model::Task::kClassify)));
  }

  int64_t rows() const { return (options.image_height + options.patch_height - 1) / options.patch_height; }
  int64_t columns() const { return (options.image_width + options.patch_width - 1) / options.patch_width; }

  // Images go on with zeros; a field in the east with its west, in the south with its last row.
  torch::Tensor padded(const torch::Tensor& image) const {
    namespace F = torch::nn::functional;
    const int64_t south = rows() * options.patch_height - options.image_height;
    const int64_t east = columns() * options.patch_width - options.image_width;
    if (options.task == model::Task::kClassify) {
      return F::pad(image, F::PadFuncOptions({0, east, 0, south}));
    }
    const auto wrapped = F::pad(image, F::PadFuncOptions({0, east, 0, 0}).mode(torch::kCircular));
    return F::pad(wrapped, F::PadFuncOptions({0, 0, 0, south}).mode(torch::kReplicate));
  }

  torch::Tensor embed(const torch::Tensor& image, const StepContext& context) {
    auto tokens = patch_embed->proj(padded(image)).flatten(2).transpose(1, 2);
    if (cls_token.defined()) {
      tokens = torch::cat({cls_token.expand({image.size(0), -1, -1}), tokens}, 1);
    }
    return drop(tokens + pos_embed, options.dropout, context, 0, kPositions);
  }

  torch::Tensor apply_head(const torch::Tensor& z) {
    if (options.task == model::Task::kForecast) {
      return head(norm(z));
    }
    return cls_token.defined() ? head(norm(z).select(1, 0)) : head(norm(z.mean(1)));
  }

  torch::Tensor fields_of(const torch::Tensor& output) const {
    const auto patches = output.view(
        {output.size(0), rows(), columns(), options.patch_height, options.patch_width, options.out_channels});
    using torch::indexing::Slice;
    return torch::einsum("nhwpqc->nchpwq", {patches})
        .reshape({output.size(0), options.out_channels, rows() * options.patch_height, columns() * options.patch_width})
        .index({Slice(), Slice(), Slice(0, options.image_height), Slice(0, options.image_width)});
  }

  VitOptions options;
  std::shared_ptr<PatchModule> patch_embed;
  torch::Tensor cls_token;
  torch::Tensor pos_embed;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};

ReferenceVit::ReferenceVit(const VitOptions& options, at::ScalarType type, const NamedTensors& parameters)
    : modules_(std::make_unique<Modules>(options)) {
  modules_->to(type);
  const torch::NoGradGuard no_grad;
  const auto own = modules_->named_parameters();
  if (own.size() != parameters.size()) {
    throw std::logic_error("the reference has " + std::to_string(own.size()) + " parameters, given are " +
                           std::to_string(parameters.size()));
  }
  for (const auto& item : own) {
    const auto& value = parameters.at(item.key());
    if (value.sizes() != item.value().sizes()) {
      throw std::logic_error("shape of " + item.key());
    }
    item.value().copy_(value);
  }
}

ReferenceVit::~ReferenceVit() = default;

at::Tensor ReferenceVit::forward(const at::Tensor& image, const StepContext& context) {
  const at::Tensor output = head_output(image, context);
  return modules_->options.task == model::Task::kForecast ? modules_->fields_of(output) : output;
}

at::Tensor ReferenceVit::head_output(const at::Tensor& image, const StepContext& context) {
  auto z = modules_->embed(image, context);
  const int64_t depth = modules_->options.depth;
  for (int64_t layer = 0; layer < depth; ++layer) {
    const double rate =
        depth == 1 ? 0.0 : modules_->options.drop_path * static_cast<double>(layer) / static_cast<double>(depth - 1);
    z = modules_->blocks->ptr<BlockModule>(static_cast<size_t>(layer))->forward(z, context, layer + 1, rate);
  }
  return modules_->apply_head(z);
}

NamedTensors ReferenceVit::gradients() const {
  NamedTensors gradients;
  for (const auto& item : modules_->named_parameters()) {
    gradients[item.key()] = item.value().grad();
  }
  return gradients;
}

}  // namespace vit_hybrid::testing
