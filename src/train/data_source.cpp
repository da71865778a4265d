// Datasets by kind of data, their statistics, and the climatology.
#include "src/train/data_source.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "data/datasets/augmentation.h"
#include "data/datasets/image_dataset.h"
#include "data/datasets/memory_dataset.h"
#include "data/datasets/npy.h"
#include "data/generate/generate_images.h"
#include "data/generate/generate_weather.h"
#include "data/reading/staged_files.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/model_options.h"

namespace vit_hybrid::train {

data::IncrementTarget increments_of(const TrainingData& trained, const data::Normalization& rows,
                                    const data::SampleChannels& channels) {
  if (trained.increment_stds.empty()) {
    return {};
  }
  if (std::ssize(trained.increment_stds) != channels.prognostic) {
    throw Error(ErrorClass::kBadData, str("the model predicts increments of ", trained.increment_stds.size(),
                                          " channels, ", channels.prognostic, " are taken and predicted"));
  }
  return {{trained.increment_means, trained.increment_stds}, data::part_of(rows, channels.state())};
}

at::Tensor read_climatology(const DataConfig& config, const comm::MpiGroup& group, const std::vector<int64_t>& shape,
                            const data::Normalization& normalization, const std::string& channels) {
  const std::string& path = config.time_means;
  const std::string found = !path.empty()          ? path
                            : config.stats.empty() ? std::string()
                                                   : config.stats + "/time_means.npy";
  const bool must_exist = !path.empty();
  const int64_t exists = group.min(!found.empty() && access(found.c_str(), R_OK) == 0 ? 1 : 0);
  if (found.empty() || (exists == 0 && !must_exist)) {
    return {};
  }
  return comm::agreed(group, [&] {
    at::Tensor means = data::read_npy(found);
    if (const auto known = data::statistics_rows(found, channels); known && means.dim() == 4) {
      if (means.size(1) != known->total) {
        throw Error(ErrorClass::kBadData,
                    str(found, ": shape (", join(means.sizes()), "), but ", data::kStatisticsChannels,
                        " beside it names ", known->total, " channels"));
      }
      means = means.index_select(1, at::tensor(known->rows, at::kLong));
    }
    if (means.numel() != shape[0] * shape[1] * shape[2]) {
      throw Error(ErrorClass::kBadData,
                  str(found, ": shape (", join(means.sizes()), "), expected (1, ", join(shape), ")"));
    }
    means = means.reshape(shape).to(at::kFloat);
    const at::Tensor normalised = at::empty_like(means);
    data::normalize_field(means.contiguous(), normalization, normalised);
    return normalised;
  });
}

data::WeatherOptions weather_options(const DataConfig& config, const TrainingData& trained, const std::string& folder,
                                     const std::string& dates, int64_t steps, double hours) {
  data::WeatherOptions options;
  options.folder = folder;
  options.global_means = config.global_means;
  options.global_stds = config.global_stds;
  options.normalization = normalization_of(trained);
  options.roles = config.roles;
  options.grid = trained.grid;
  options.fields = {.dataset = config.dataset_name,
                    .channels = data::row_channels(config.roles, config.channels),
                    .variables = config.variables,
                    .channels_otherwise = trained.channels};
  options.lead = trained.lead.rows > 0 ? trained.lead : data::asked_lead(config.lead);
  const auto leads = [&](int64_t count) {
    constexpr double kMostRows = 1e15;
    const auto times = static_cast<double>(count);
    return data::Lead{static_cast<int64_t>(std::min(times * static_cast<double>(options.lead.rows), kMostRows)),
                      times * options.lead.hours};
  };
  options.fields.dates = {dates, leads(config.roles.history - 1),
                          hours > 0.0 ? data::Lead{.rows = 0, .hours = hours} : leads(steps), "--valid-dates"};
  options.io = config.io;
  return options;
}

namespace {

std::vector<int64_t> model_input(const model::VitOptions& model) {
  return {model.in_channels, model.image_height, model.image_width};
}

// --- HDF5 files -----------------------------------------------------------------------------------------------------

// What all kinds of files are opened with; `limit` 0: all samples.
template <class Options>
void set_reading(Options& options, const DataConfig& config, int64_t limit) {
  options.io = config.io;
  options.mpiio_hints = data::parse_mpiio_hints(config.mpiio_hints);
  options.stage_samples = limit;
  if (config.stage == StageData::kNode) {
    options.stage_folder = config.stage_dir.empty() ? data::default_stage_folder() : config.stage_dir;
  }
}

// --- HDF5 weather ---------------------------------------------------------------------------------------------------

// Those of the configuration, of the channels that are taken and predicted.
void read_increments(const DataConfig& config, const comm::MpiGroup& world, const data::WeatherDataset& train,
                     DataSource& source) {
  comm::agreed_on_rank_0(world, [&] { data::require_increment_lead(config.stats, train.lead()); });
  const Range state = train.channels().state();
  const auto path = [&](const char* name) { return config.stats + "/" + name; };
  const auto increments =
      data::Normalization::read(world, path(data::kIncrementMeans), path(data::kIncrementDeviations), state.size(),
                                data::part_of_names(train.given_channels(), state));
  source.described.increment_means = increments.mean;
  source.described.increment_stds = increments.std;
  source.increments = increments_of(source.described, train.normalization(), train.channels());
}

// Training takes no row beyond its dates, which may be validation's.
std::unique_ptr<data::WeatherDataset> open_training_weather(const DataConfig& config, const comm::MpiGroup& world) {
  data::WeatherOptions options = weather_options(config, {}, config.train_data, "");
  options.fields.dates = {.span = config.train_dates, .option = "--train-dates"};
  set_reading(options, config, config.limit_nsamples);
  return std::make_unique<data::WeatherDataset>(world, options);
}

std::unique_ptr<data::WeatherDataset> open_valid_weather(const DataConfig& config, const TrainingData& trained,
                                                         const comm::MpiGroup& world) {
  data::WeatherOptions options = weather_options(config, trained, config.valid_data, config.valid_dates);
  set_reading(options, config, config.limit_nsamples_val);
  return std::make_unique<data::WeatherDataset>(world, options);
}

// By dates parts of the same files are taken: a score of what was learned is none.
void warn_of_shared_times(const DataConfig& config, const data::WeatherDataset& train,
                          const data::WeatherDataset& valid) {
  int64_t shared = 0;
  std::map<std::string, Range> rows;
  for (const data::RowFile& file : train.files()) {
    rows[file.path] = file.layout.chosen_rows();
  }
  for (const data::RowFile& file : valid.files()) {
    shared += data::common_part(rows[file.path], file.layout.chosen_rows()).size();
  }
  if (shared > 0 && !(config.train_dates.empty() && config.valid_dates.empty())) {
    log_warning(str(counted(shared, "time"), " of the validation are the training's, too",
                    config.train_dates.empty() ? ": --train-dates leaves them out" : ""));
  }
}

std::string text_of(const data::WeatherDataset& dataset, const std::string& folder, const std::string& dates) {
  const int64_t gaps = dataset.num_gaps();
  return str(counted(static_cast<size_t>(dataset.size()), "pair"), " ",
             dataset.lead().rows == 1 ? "" : data::lead_text(dataset.lead()) + " apart ",
             gaps == 0 ? "" : str("(none crosses the ", counted(gaps, "gap"), " in their times) "), "from ",
             dataset.files().size(), " files in ", folder, dates.empty() ? "" : str(", of the dates ", dates),
             ", read ", dataset.io_text());
}

std::string text_of(const at::Tensor& climatology) {
  return str("; ACC against ", climatology.defined() ? "time means" : "channel means");
}

// Which latitudes the rows are weighed by.
std::string rows_text(const data::Grid& given, const data::Grid& trained) {
  const auto range = [](const data::Grid& grid) { return str(grid.latitudes.front(), " to ", grid.latitudes.back()); };
  if (!given.latitudes.empty()) {
    return str("rows at the data's latitudes ", range(given));
  }
  return trained.latitudes.empty() ? "rows taken for latitudes 90 to -90, which the data do not name"
                                   : str("rows at the checkpoint's latitudes ", range(trained));
}

// Training data on the one hand, validation data on the other.
void check_same_fields(const data::WeatherDataset& train, const data::WeatherDataset& valid) {
  if (!train.given_channels().empty() && !valid.given_channels().empty() &&
      train.given_channels() != valid.given_channels()) {
    throw Error(ErrorClass::kBadData,
                str("the training data have the channels ", train.given_channels(), ", the validation data ",
                    valid.given_channels()),
                "both must have the same channels in the same order");
  }
  if (const auto other = data::other_unit(train.given_units(), valid.given_units())) {
    throw Error(ErrorClass::kBadData,
                str("the training data have channel ", other->channel, " (", shown(train.row_names()[other->channel]),
                    ") in ", shown(other->first), ", the validation data in ", shown(other->second)),
                "convert the values of one of them");
  }
  if (!data::same_grid(train.grid(), valid.grid())) {
    throw Error(ErrorClass::kBadData,
                str("the training data have ", data::grid_text(train.grid()), ", the validation data ",
                    data::grid_text(valid.grid())),
                "both must have the same points in the same order");
  }
}

DataSource open_hdf5_weather(const DataConfig& config, const comm::MpiGroup& world) {
  DataSource source;
  auto train = open_training_weather(config, world);
  source.described = description_of_fields(*train, data::roles_text(config.roles));
  if (config.target == TargetKind::kIncrement) {
    read_increments(config, world, *train, source);
  }
  source.text = text_of(*train, config.train_data, config.train_dates);
  if (config.has_validation()) {
    auto valid = open_valid_weather(config, {.lead = train->lead()}, world);
    comm::agreed(world, [&] { check_same_fields(*train, *valid); });
    warn_of_shared_times(config, *train, *valid);
    source.described.grid = data::joined_grid(train->grid(), valid->grid());
    source.climatology = climatology_of(config, world, *train);
    source.text += str(text_of(source.climatology), "; ", valid->size(), " for validation");
    source.valid = std::move(valid);
  }
  source.text += str("; ", rows_text(source.described.grid, {}));
  source.train = std::move(train);
  return source;
}

// --- HDF5 images ----------------------------------------------------------------------------------------------------

// Without paths, and what is of training or of validation alone.
data::ImageOptions image_options(const model::VitOptions& model, const DataConfig& config) {
  data::ImageOptions options;
  options.images = config.dataset_name;
  options.labels = config.labels_name;
  options.image_size = model.image_height;
  options.resized = config.valid_resize;
  options.interpolation = config.interpolation;
  options.num_classes = model.num_classes;
  return options;
}

std::unique_ptr<data::ImageDataset> open_training_images(const model::VitOptions& model, const DataConfig& config,
                                                         uint64_t seed, const comm::MpiGroup& world) {
  data::ImageOptions options = image_options(model, config);
  options.path = config.train_data;
  options.seed = seed;
  set_reading(options, config, config.limit_nsamples);
  return std::make_unique<data::ImageDataset>(world, options);
}

std::unique_ptr<data::ImageDataset> open_valid_images(const model::VitOptions& model, const DataConfig& config,
                                                      const TrainingData& trained, const comm::MpiGroup& world,
                                                      LabelUse labels = LabelUse::kNeeded) {
  data::ImageOptions options = image_options(model, config);
  options.path = config.valid_data;
  options.use = data::ImageUse::kEvaluation;
  options.labels_needed = labels == LabelUse::kNeeded;
  options.class_names = trained.class_names;
  if (trained.means.size() == options.statistics.mean.size()) {
    std::copy(trained.means.begin(), trained.means.end(), options.statistics.mean.begin());
    std::copy(trained.stds.begin(), trained.stds.end(), options.statistics.std.begin());
  }
  set_reading(options, config, config.limit_nsamples_val);
  return std::make_unique<data::ImageDataset>(world, options);
}

std::string text_of(const data::ImageDataset& dataset, const std::string& path) {
  return str(dataset.size(), " images in ", path, ", read ", dataset.io_text());
}

TrainingData description_of(const data::ImageDataset& dataset) {
  const data::ColorStatistics& statistics = dataset.statistics();
  TrainingData described;
  described.class_names = dataset.class_names();
  described.means.assign(statistics.mean.begin(), statistics.mean.end());
  described.stds.assign(statistics.std.begin(), statistics.std.end());
  return described;
}

DataSource open_hdf5_images(const model::VitOptions& model, const DataConfig& config, uint64_t seed,
                            const comm::MpiGroup& world) {
  DataSource source;
  auto train = open_training_images(model, config, seed, world);
  source.described = description_of(*train);
  source.text = text_of(*train, config.train_data);
  if (config.has_validation()) {
    auto valid = open_valid_images(model, config, {}, world);
    data::check_same_classes(*train, *valid);
    if (train->class_names().empty() != valid->class_names().empty()) {
      log_warning(str("of ", train->path(), " and ", valid->path(),
                      " one names its classes and the other does not: their "
                      "numbers are taken for the same"));
    }
    source.described.class_names = train->class_names().empty() ? valid->class_names() : train->class_names();
    source.text += str("; ", valid->size(), " for validation");
    source.valid = std::move(valid);
  }
  source.train = std::move(train);
  return source;
}

// --- made in memory -------------------------------------------------------------------------------------------------

std::unique_ptr<data::Dataset> make_synthetic(const model::VitOptions& model, int64_t samples, uint64_t seed) {
  const auto make = [&](auto dataset) { return std::make_unique<data::SyntheticDataset>(std::move(dataset)); };
  if (model.task == model::Task::kForecast) {
    return make(data::SyntheticDataset::fields(samples, model_input(model), seed, model.out_channels));
  }
  return make(data::SyntheticDataset::images(samples, model_input(model), model.num_classes, seed));
}

DataSource make_synthetic_data(const model::VitOptions& model, const DataConfig& config, uint64_t seed) {
  DataSource source;
  source.train = make_synthetic(model, config.generated_samples, seed);
  if (config.has_validation()) {
    source.valid = make_synthetic(model, config.generated_valid_samples, seed + 1);
  }
  if (config.target == TargetKind::kIncrement) {
    const auto plain = data::Normalization::identity(std::min(model.in_channels, model.out_channels));
    source.described.increment_means = plain.mean;
    source.described.increment_stds = plain.std;
    source.increments = {plain, plain};
  }
  source.text = str("synthetic noise, ", source.train->size(), " samples: nothing to learn, for benchmarks");
  return source;
}

data::GenerateWeatherOptions builtin_options(const model::VitOptions& model, int64_t year, int64_t pairs,
                                             uint64_t seed) {
  data::GenerateWeatherOptions options;
  options.first_year = year;
  options.steps_per_year = pairs + 1;
  options.channels = model.in_channels;
  options.height = model.image_height;
  options.width = model.image_width;
  options.seed = seed;
  return options;
}

// Training and validation are two years of one planet, both in the units of the training year.
DataSource make_builtin_data(const model::VitOptions& model, const DataConfig& config, uint64_t seed,
                             const comm::MpiGroup& world) {
  constexpr int64_t kTrainYear = 1990;
  const int64_t valid_pairs = config.generated_for_validation();
  std::vector<data::GenerateWeatherOptions> years = {
      builtin_options(model, kTrainYear, config.generated_samples, seed)};
  if (valid_pairs > 0) {
    years.push_back(builtin_options(model, kTrainYear + 1, valid_pairs, seed));
  }
  const std::vector<data::WeatherInMemory> weather = data::generate_weather_in_memory(years, world);
  const data::WeatherInMemory& training = weather.front();
  const auto pairs = [&](at::Tensor fields) {
    fields.sub_(training.means).div_(training.stds);
    return std::make_unique<data::MemoryDataset>(data::MemoryDataset::pairs(fields, training.channel_names));
  };
  const auto numbers = [](const at::Tensor& statistic) {
    const at::Tensor values = statistic.to(at::kDouble).contiguous();
    return std::vector<double>(values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
  };
  DataSource source;
  source.described.channels = join(training.channel_names, ",");
  source.described.means = numbers(training.means);
  source.described.stds = numbers(training.stds);
  source.train = pairs(training.fields);
  if (config.target == TargetKind::kIncrement) {
    for (int64_t c = 0; c < training.fields.size(1); ++c) {
      const at::Tensor states = training.fields.select(1, c).to(at::kDouble);  // normalized by now
      const int64_t pairs_of_channel = states.size(0) - 1;
      const at::Tensor increments = states.narrow(0, 1, pairs_of_channel) - states.narrow(0, 0, pairs_of_channel);
      const double scale = source.described.stds[static_cast<size_t>(c)];
      source.described.increment_means.push_back(increments.mean().item<double>() * scale);
      source.described.increment_stds.push_back(increments.std(/*unbiased=*/false).item<double>() * scale);
    }
    const data::Normalization states = {source.described.means, source.described.stds};
    source.increments = {{source.described.increment_means, source.described.increment_stds}, states};
  }
  source.text = str(source.train->size(), " pairs of shallow-water weather generated in memory");
  if (valid_pairs > 0) {
    source.valid = pairs(weather.back().fields);
    source.text += str("; ", valid_pairs, " for validation");
  }
  return source;
}

std::unique_ptr<data::PaintedDataset> painted(const model::VitOptions& model, int64_t first, int64_t count,
                                              uint64_t seed) {
  return std::make_unique<data::PaintedDataset>(data::PaintedImages{
      .first = first, .count = count, .size = model.image_height, .classes = model.num_classes, .seed = seed});
}

// Validation goes on with the numbers of the images.
DataSource make_builtin_images(const model::VitOptions& model, const DataConfig& config, uint64_t seed) {
  auto train = painted(model, 0, config.generated_samples, seed);
  DataSource source;
  source.described.class_names = train->class_names();
  source.described.means.assign(train->scaling().mean.begin(), train->scaling().mean.end());
  source.described.stds.assign(train->scaling().std.begin(), train->scaling().std.end());
  source.text = str(train->size(), " images of ", model.num_classes, " classes, painted when they are read");
  if (config.has_validation()) {
    source.valid = painted(model, config.generated_samples, config.generated_valid_samples, seed);
    source.text += str("; ", config.generated_valid_samples, " for validation");
  }
  source.train = std::move(train);
  return source;
}

// --- checks ---------------------------------------------------------------------------------------------------------

std::vector<int64_t> model_target(const model::VitOptions& model) {
  if (model.task == model::Task::kClassify) {
    return {};
  }
  return {model.out_channels, model.image_height, model.image_width};
}

// The data are the same on all ranks, and so is this error.
void check_shapes(const model::VitOptions& model, const data::Dataset& dataset, const std::string& what,
                  const std::string& hint) {
  const std::vector<int64_t> takes = model_input(model), gives = model_target(model);
  if (dataset.input_shape() != takes || dataset.target_shape() != gives) {
    const bool is_even = takes == gives || model.task != model::Task::kForecast;
    throw Error(ErrorClass::kUsage,
                str("the ", what, " have ", shape_text(dataset.input_shape()), ", the model takes ", shape_text(takes),
                    is_even ? "" : str(" and gives ", shape_text(gives))),
                hint);
  }
}

DataSource open(const model::VitOptions& model, const DataConfig& config, uint64_t seed, const comm::MpiGroup& world) {
  const bool is_forecast = model.task == model::Task::kForecast;
  switch (config.kind) {
    case DataKind::kHdf5:
      return is_forecast ? open_hdf5_weather(config, world) : open_hdf5_images(model, config, seed, world);
    case DataKind::kSynthetic:
      return make_synthetic_data(model, config, seed);
    case DataKind::kBuiltin:
      return is_forecast ? make_builtin_data(model, config, seed, world) : make_builtin_images(model, config, seed);
    case DataKind::kAuto:
      break;
  }
  throw Error(ErrorClass::kInternal, "the kind of data was not resolved");
}

// --- limits ---------------------------------------------------------------------------------------------------------

// A limit of 0 is none.
int64_t limited(const data::Dataset& dataset, int64_t limit) {
  return limit > 0 ? std::min(limit, dataset.size()) : dataset.size();
}

void apply_limits(const DataConfig& config, DataSource& source) {
  source.num_train_samples = source.described.num_samples = limited(*source.train, config.limit_nsamples);
  if (source.num_train_samples < source.train->size()) {
    source.text += str("; of these the first ", source.num_train_samples, " are used for training");
  }
  if (source.valid == nullptr) {
    return;
  }
  source.num_valid_samples = limited(*source.valid, config.limit_nsamples_val);
  if (source.num_valid_samples < source.valid->size()) {
    source.text += str("; of these the first ", source.num_valid_samples, " are used for validation");
  }
}

}  // namespace

DataSource open_data(const model::VitOptions& model, const DataConfig& config, uint64_t seed,
                     const comm::MpiGroup& world) {
  const MemoryScope scope(MemoryClass::kData);
  DataSource source = open(model, config, seed, world);
  comm::agreed(world, [&] {
    check_shapes(model, *source.train, "training data",
                 "set --in-channels, --out-channels and --image-size HxW to what the data have");
    if (source.valid != nullptr) {
      check_shapes(model, *source.valid, "validation data",
                   "give validation data with the channels and the grid of the training data");
    }
  });
  apply_limits(config, source);
  if (config.mixup > 0.0) {
    source.train = std::make_unique<data::MixupDataset>(
        std::move(source.train), data::MixupOptions{config.mixup, source.num_train_samples, model.num_classes, seed});
    source.text += str("; mixed in pairs (alpha ", config.mixup, ")");
  }
  return source;
}

DataSource open_valid_data(const model::VitOptions& model, const DataConfig& config, const TrainingData& trained,
                           const comm::MpiGroup& world, LabelUse labels) {
  const MemoryScope scope(MemoryClass::kData);
  DataSource source;
  const auto check = [&](const data::Dataset& valid) {
    comm::agreed(world, [&] { check_shapes(model, valid, str("data in ", config.valid_data), kModelIsFixed); });
  };
  if (model.task == model::Task::kForecast) {
    auto valid = open_valid_weather(config, trained, world);
    check(*valid);
    source.climatology = climatology_of(config, world, *valid);
    source.text = text_of(*valid, config.valid_data, config.valid_dates) + text_of(source.climatology);
    source.described = description_of_fields(*valid, data::roles_text(config.roles));
    source.increments = increments_of(trained, valid->normalization(), valid->channels());
    source.text += str(config.global_means.empty() ? "; normalised with the checkpoint's statistics" : "", "; ",
                       rows_text(source.described.grid, trained.grid));
    source.valid = std::move(valid);
  } else {
    auto valid = open_valid_images(model, config, trained, world, labels);
    check(*valid);
    source.text = text_of(*valid, config.valid_data);
    source.described = description_of(*valid);
    source.has_labels = valid->has_labels();
    if (!source.has_labels) {
      source.described.class_names = trained.class_names;  // there are no numbers that could be of other classes
    }
    source.valid = std::move(valid);
  }
  source.num_valid_samples = limited(*source.valid, config.limit_nsamples_val);
  return source;
}

}  // namespace vit_hybrid::train
