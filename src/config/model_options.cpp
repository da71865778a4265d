// The options of the model: names, ranges and sentences.
#include "src/config/model_options.h"

#include "src/config/run_options.h"

namespace vit_hybrid::train {

using options::choice;
using options::extent;
using options::integer;
using options::number;
using options::NumberRange;
using options::OptionTable;
using options::word;

namespace {

constexpr int64_t kMostSize = 1 << 24;   // of one dimension of a tensor
constexpr int64_t kMostBlocks = 10'000;  // the deepest that were trained have about a thousand

void add_rates(OptionTable& table, model::VitOptions& model) {
  const NumberRange below_one{.least = 0.0, .most = 1.0, .most_bound = NumberRange::Bound::kExcluded};
  NumberRange between_zero_and_one = below_one;
  between_zero_and_one.least_bound = NumberRange::Bound::kExcluded;
  table.add({.name = "dropout",
             .value = number(model.dropout, below_one),
             .help = "Dropout rate after positions, projection and MLP.",
             .megatron = {{"hidden-dropout"}},
             .names_elsewhere = {"drop", "drop-rate"}});
  table.add({.name = "attention-dropout",
             .value = number(model.attention_dropout, below_one),
             .help = "Dropout rate of attention weights; the rate of dropout where that is given and this is not.",
             .megatron = {{"attention-dropout"}},
             .names_elsewhere = {"attn-drop", "attn-dropout", "attn-drop-rate"}});
  table.add({.name = "drop-path",
             .value = number(model.drop_path, below_one),
             .help = "Rate at which the last block is left out for a sample; rises linearly from 0 at the first.",
             .names_elsewhere = {"drop-path-rate", "stochastic-depth"}});
  table.add({.name = "label-smoothing",
             .value = number(model.label_smoothing, below_one),
             .help = "Share of the target that cross-entropy spreads over all classes.",
             .names_elsewhere = {"smoothing"}});
  table.add({.name = "norm-eps",
             .value = number(model.norm_eps, between_zero_and_one),
             .help = "Epsilon of the layer norms.",
             .megatron = {{"norm-epsilon"}},
             .names_elsewhere = {"layernorm-epsilon", "layer-norm-eps"}});
}

}  // namespace

void add_model(OptionTable& table, RunConfig& config) {
  model::VitOptions& model = config.model;
  table.begin_group("Model");
  table.add({.name = "preset",
             .value = word(config.preset, model::preset_names()),
             .help = "Named model; the options task to mlp-hidden below, where given too, change it.",
             .forgets = {"task", "image-size", "patch-size", "in-channels", "out-channels", "num-classes", "pooling",
                         "embed-dim", "depth", "num-heads", "mlp-hidden"},
             .names_elsewhere = {"model", "arch"}});
  table.add({.name = "task",
             .value = choice(model.task, {"forecast", "classify"}),
             .help = "forecast: predict the next state of fields; classify: predict the class of an image."});
  table.add({.name = "image-size",
             .value = extent(model.image_height, model.image_width, kMostSize),
             .help =
                 "Height and width of the input; one number for a square. A training that is given none takes those "
                 "of the fields of train-data, and for images 224, less where they are stored smaller.",
             .aliases = {"img-size"},
             .names_elsewhere = {"input-size", "resolution"}});
  table.add({.name = "patch-size",
             .value = integer(model.patch_size, from_one(kMostSize)),
             .help = "Side of the square patches that become tokens; divides height and width.",
             .unit = "pixels"});
  table.add({.name = "in-channels",
             .value = integer(model.in_channels, from_one(kMostSize)),
             .help = "Channels of the input; a training that is given none takes those of train-data.",
             .aliases = {"n-in-channels"},
             .megatron = {{"num-channels"}},
             .names_elsewhere = {"in-chans"}});
  table.add(
      {.name = "out-channels",
       .value = integer(model.out_channels, from_one(kMostSize)),
       .help = "Channels of the forecast; a training that is given none takes those of train-data; without train-data "
               "as many as in-channels.",
       .aliases = {"n-out-channels"}});
  table.add({.name = "num-classes",
             .value = integer(model.num_classes, {2, kMostSize}),
             .help = "Classes of the classifier; a training that is given none takes those of train-data.",
             .megatron = {{"num-classes"}}});
  table.add({.name = "pooling",
             .value = choice(model.pooling, {"token", "mean"}),
             .help = "What the classifier looks at: a class token, or the mean of all tokens."});
  table.add({.name = "embed-dim",
             .value = integer(model.embed_dim, from_one(kMostSize)),
             .help = "Features of a token; a multiple of num-heads.",
             .megatron = {{"hidden-size"}},
             .names_elsewhere = {"dim", "d-model", "hidden-dim", "n-embd"}});
  table.add({.name = "depth",
             .value = integer(model.depth, from_one(kMostBlocks)),
             .help = "Transformer blocks.",
             .megatron = {{"num-layers"}},
             .names_elsewhere = {"layers", "n-layers", "num-hidden-layers"}});
  table.add({.name = "num-heads",
             .value = integer(model.num_heads, from_one(kMostSize)),
             .help = "Attention heads of a block.",
             .megatron = {{"num-attention-heads"}},
             .names_elsewhere = {"heads", "n-heads", "nhead"}});
  table.add({.name = "mlp-hidden",
             .value = integer(model.mlp_hidden, from_one(kMostSize)),
             .help = "Hidden features of a block's MLP; 4 x embed-dim where that is given and this is not.",
             .megatron = {{"ffn-hidden-size"}},
             .names_elsewhere = {"mlp-ratio", "mlp-dim", "intermediate-size"}});
  table.add({.name = "gelu",
             .value = choice(model.gelu, {"erf", "tanh"}),
             .help = "GELU of the MLP: with erf; or the formula with tanh, which GPUs can fuse with products.",
             .names_elsewhere = {"act", "activation", "hidden-act", "activation-function"}});
  add_rates(table, model);
}

}  // namespace vit_hybrid::train
