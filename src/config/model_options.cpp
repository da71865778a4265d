// The options of the model: names, ranges and sentences; and what of them the training data decide.
#include "src/config/model_options.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "data/datasets/class_names.h"
#include "data/datasets/image_dataset.h"
#include "data/datasets/weather_dataset.h"
#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_rows.h"
#include "data/reading/chunk_rows.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
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
  table.add({.name = "loss",
             .value = choice(model.loss, {"relative-l2", "mse", "l1"}),
             .help = "What a forecast's training makes small, in normalised fields: the norm of the error over that of "
                     "the truth, or the mean of the squared errors (mse) or of the absolute ones (l1); see "
                     "loss-latitude-weights and loss-channel-weights."});
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
             .value = extent(model.patch_height, model.patch_width, kMostSize, options::SquareText::kOneNumber),
             .help = "Height and width of the patches that become tokens; one number for a square. Where it does not "
                     "divide the input's, the last patches in the south and east are cut short, and padded.",
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

namespace {

constexpr const char* kOrigin = "the data";
constexpr int64_t kMostClasses = 1 << 24;  // of --num-classes
constexpr size_t kLongestShownPath = 4096;

// --- looking --------------------------------------------------------------------------------------------------------

// The stored bytes of a chunk, at most as many as its values take, and what is made of them before they are values;
// these, too, where rows are parts of chunks.
int64_t bytes_to_decode(const data::ArrayLayout& fields) {
  int64_t most = 0;
  for (const data::ArrayLayout* const array : fields.stored_arrays()) {
    const auto moves = std::count_if(array->filters.begin(), array->filters.end(), [](int64_t filter) {
      return filter != static_cast<int64_t>(data::ChunkFilter::kFletcher32) &&
             filter != static_cast<int64_t>(data::ChunkFilter::kCrc32c);
    });
    const int64_t values = data::num_elements(array->chunk) * static_cast<int64_t>(c10::elementSize(array->type));
    const bool is_whole = !array->chunk.empty() && array->chunk.front() == 1;
    most = std::max(most, array->filters.empty() ? 0 : (std::max<int64_t>(moves, 1) + (is_whole ? 0 : 1)) * values);
  }
  return most;
}

DataShape shape_of_fields(const DataConfig& data) {
  const data::FieldQuery query = {.dataset = data.dataset_name,
                                  .channels = data::row_channels(data.roles, data.channels),
                                  .variables = data.variables,
                                  .dates = {.span = data.train_dates, .option = "--train-dates"}};
  const data::RowFile first = data::outline_first_fields(data::list_weather_files(data.train_data), query);
  const data::ArrayLayout& layout = first.layout;
  data::require_fields(layout, str(first.path, ": dataset '", layout.name, "'"));
  const data::SampleChannels channels = data::sample_channels(data.roles, layout.shape[1]);
  const int64_t plane = layout.shape[2] * layout.shape[3] * static_cast<int64_t>(sizeof(float));
  std::error_code ignored;
  const bool has_climatology =
      !data.time_means.empty() ||
      (!data.stats.empty() && std::filesystem::exists(data.stats + "/time_means.npy", ignored));
  return {.channels = channels.inputs(),
          .height = layout.shape[2],
          .width = layout.shape[3],
          .out_channels = channels.outputs() == channels.inputs() ? 0 : channels.outputs(),
          .decoding_bytes = bytes_to_decode(layout),
          .static_bytes = channels.statics * plane,
          .climatology_bytes = has_climatology ? channels.outputs() * plane : 0};
}

int64_t num_label_classes(const DataConfig& data) {
  const int64_t largest = data::largest_integer(data.train_data, data.labels_name).value_or(-1);
  if (largest >= kMostClasses) {
    throw Error(ErrorClass::kBadData,
                str(data.train_data, ": dataset '", data.labels_name, "' holds the class ", largest),
                str("classes are 0 .. ", kMostClasses - 1));
  }
  return largest + 1;
}

// 0 where there is no such file, or none that will do, which is told when it is opened.
int64_t num_valid_images(const DataConfig& data) {
  std::error_code error;
  if (!data.has_validation() || !std::filesystem::is_regular_file(data.valid_data, error)) {
    return 0;
  }
  try {
    return data::outline_dataset(data.valid_data, data.dataset_name).num_rows();
  } catch (const Error&) {
    return 0;
  }
}

DataShape shape_of_images(const DataConfig& data) {
  const data::ArrayLayout layout = data::outline_dataset(data.train_data, data.dataset_name);
  data::require_images(layout, str(data.train_data, ": dataset '", data.dataset_name, "'"));
  const std::string names = data::outline_dataset(data.train_data, data.labels_name, "classes").attribute;
  return {.channels = layout.shape[3],
          .height = layout.shape[1],
          .width = layout.shape[2],
          .num_classes = names.empty() ? num_label_classes(data) : std::ssize(data::split_names(names)),
          .has_class_names = !names.empty(),
          .decoding_bytes = bytes_to_decode(layout),
          .images = layout.num_rows(),
          .valid_images = num_valid_images(data)};
}

// --- following ------------------------------------------------------------------------------------------------------

// An option, its value in the configuration, and what the data have.
struct Followed {
  const char* option;
  std::vector<int64_t*> values;
  std::vector<int64_t> of_data;
  bool more_is_right = false;

  bool fits() const {
    return std::equal(values.begin(), values.end(), of_data.begin(), [&](const int64_t* value, int64_t data) {
      return more_is_right ? *value >= data : *value == data;
    });
  }
  void take() const {
    for (size_t i = 0; i < values.size(); ++i) {
      *values[i] = of_data[i];
    }
  }
  std::string value_text() const {
    std::vector<int64_t> numbers;
    std::transform(values.begin(), values.end(), std::back_inserter(numbers), [](const int64_t* v) { return *v; });
    return join(numbers, "x");
  }
};

std::vector<Followed> followed_options(model::VitOptions& model, const DataShape& shape) {
  std::vector<Followed> out = {{"in-channels", {&model.in_channels}, {shape.channels}}};
  if (model.task == model::Task::kForecast) {
    out.insert(out.begin(), {"image-size", {&model.image_height, &model.image_width}, {shape.height, shape.width}});
    out.push_back(
        {"out-channels", {&model.out_channels}, {shape.out_channels > 0 ? shape.out_channels : shape.channels}});
  } else if (shape.num_classes > 0) {
    const int64_t classes = std::max<int64_t>(shape.num_classes, 2);
    out.push_back({"num-classes", {&model.num_classes}, {classes}, !shape.has_class_names});
  }
  return out;
}

// Crops are square, and smaller ones than the model's are no longer parts of the image but blown up.
void follow_stored_size(LoadedConfig& loaded, const DataShape& shape) {
  model::VitOptions& model = loaded.config.model;
  const int64_t stored = std::min(shape.height, shape.width);
  const bool is_given = loaded.given.contains("image-size");
  if (is_given || (stored >= model.image_height && model.image_height == model.image_width)) {
    return;
  }
  const int64_t most = std::min({stored, model.image_height, model.image_width});
  const int64_t patch = std::clamp<int64_t>(std::lcm(model.patch_height, model.patch_width), 1, most);
  model.image_height = model.image_width = most / patch * patch;
  loaded.config.origin["image-size"] = kOrigin;
}

// "on the command line", "in c.yaml:3".
std::string place_of(const std::string& origin) {
  return (origin == "command line" ? "on the " : origin.starts_with("environment ") ? "in the " : "in ") + origin;
}

}  // namespace

std::optional<DataShape> look_at_data(const RunConfig& config) {
  const DataConfig& data = config.data;
  std::error_code error;
  if (data.kind != DataKind::kHdf5) {
    return std::nullopt;
  }
  if (config.is_forecast()) {
    return std::filesystem::exists(data.train_data, error) ? std::optional(shape_of_fields(data)) : std::nullopt;
  }
  return std::filesystem::is_regular_file(data.train_data, error) ? std::optional(shape_of_images(data)) : std::nullopt;
}

std::optional<DataShape> look_at_data(const RunConfig& config, const comm::MpiGroup& world) {
  if (config.data.kind != DataKind::kHdf5) {
    return std::nullopt;
  }
  std::optional<DataShape> shape;
  comm::agreed_on_rank_0(world, [&] { shape = look_at_data(config); });
  DataShape values = shape.value_or(DataShape());
  world.broadcast(&values, sizeof(values), 0);
  return values == DataShape() ? std::nullopt : std::optional(values);
}

void follow_data(LoadedConfig& loaded, const DataShape& shape) {
  RunConfig& config = loaded.config;
  config.data.decoding_bytes = shape.decoding_bytes;
  config.data.static_bytes = shape.static_bytes;
  config.data.climatology_bytes = shape.climatology_bytes;
  std::vector<std::string> mismatches, corrections;
  if (!config.is_forecast()) {
    config.data.image_bytes = shape.channels * shape.height * shape.width;
    config.data.images = shape.images;
    config.data.valid_images = shape.valid_images;
    follow_stored_size(loaded, shape);
  }
  for (const Followed& followed : followed_options(config.model, shape)) {
    const auto& misread = loaded.misread_options;
    if (!loaded.given.contains(followed.option)) {
      followed.take();
      config.origin[followed.option] = kOrigin;
    } else if (std::find(misread.begin(), misread.end(), followed.option) == misread.end() && !followed.fits()) {
      const std::string of_data = join(followed.of_data, "x");
      mismatches.push_back(str("--", followed.option, " ", followed.value_text(), " was given ",
                               place_of(config.origin.at(followed.option)), ", the data have ", of_data));
      corrections.push_back(str("--", followed.option, " ", of_data, followed.more_is_right ? " or more" : ""));
    }
  }
  if (!mismatches.empty()) {
    loaded.problems.push_back(str("the model does not fit the data in ",
                                  shown(config.data.train_data, kLongestShownPath), ": ", join(mismatches, "; "),
                                  ": give ", join(corrections, " "), ", or leave ",
                                  mismatches.size() > 1 ? "them" : "it", " out, or use other data"));
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.size() == 3 ? str(shape[0], " channels of ", shape[1], " x ", shape[2]) : str("(", join(shape), ")");
}

std::string data_shape_line(const RunConfig& config) {
  RunConfig printed = config;  // the table binds to variables
  RunRequest request;
  const options::OptionTable table = run_option_table(printed, request);
  std::vector<std::string> values;
  for (const options::Option& option : table.options()) {
    const auto origin = config.origin.find(option.name);
    if (origin != config.origin.end() && origin->second == kOrigin) {
      values.push_back(option.name + " " + option.value.print());
    }
  }
  return values.empty()
             ? ""
             : str("from the data in ", shown(config.data.train_data, kLongestShownPath), ": ", join(values));
}

}  // namespace vit_hybrid::train
