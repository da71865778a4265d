// A rollout, its file, dataset by dataset, and its figures by lead time.
#include "src/infer/forecast.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "data/datasets/coordinates.h"
#include "data/reading/posix_file.h"
#include "data/tools/tool_files.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/config/model_options.h"
#include "src/infer/evaluate.h"
#include "src/infer/model_use.h"
#include "src/infer/rollout.h"
#include "src/train/data_source.h"
#include "src/train/loss_weights.h"

namespace vit_hybrid::train {

namespace {

// The figures of one state.
Evaluation figures_of(model::FieldLoss kind, const model::FieldWeights& loss_weights, const at::Tensor& prediction,
                      const at::Tensor& truth, const at::Tensor& start, const at::Tensor& climatology,
                      const data::Grid& grid) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor weights = at::tensor(data::latitude_weights(grid, truth.size(1)), at::kDouble);
  EvaluationSums sums = EvaluationSums::forecast(truth.size(0), weights, climatology);
  const auto one = [](const at::Tensor& state) { return state.unsqueeze(0); };
  const double loss = model::field_loss(kind, one(prediction), one(truth), 1, loss_weights).item<double>();
  sums.add_forecast(loss, one(prediction), one(truth), one(start));
  return sums.finish(sums.sums());
}

std::string figures_path(const ForecastOptions& options) {
  return std::filesystem::path(options.use.out).replace_extension(".json").string();
}

data::SampleChannels channels_of(const model::VitOptions& model, const data::FieldRoles& roles) {
  return data::sample_channels(roles, data::num_row_channels(roles, model.out_channels));
}

// Datasets of a file that needs no other one beside it.
constexpr const char* kTruth = "truth";
constexpr const char* kTime = "time";
constexpr const char* kTruthTime = "truth_time";
constexpr const char* kChannel = "channel";
constexpr const char* kLatitude = "latitude";
constexpr const char* kLongitude = "longitude";
constexpr const char* kRow = "row";  // where the data name no latitudes
constexpr const char* kColumn = "column";

// What the lead times will take on the disk.
void require_room(const model::VitOptions& model, const ForecastOptions& options) {
  const int64_t state =
      model.out_channels * model.image_height * model.image_width * static_cast<int64_t>(sizeof(float));
  const int64_t most_steps = std::numeric_limits<int64_t>::max() / state;
  const std::filesystem::path folder = std::filesystem::path(options.use.out).parent_path();
  data::check_room(folder.empty() ? "." : folder.string(), state * std::min(options.steps, most_steps));
}

}  // namespace

ForecastRecord::ForecastRecord(const StepConfig& config, const DataConfig& data, const ForecastOptions& options,
                               const std::string& checkpoint, const TrainingData& trained, const comm::MpiGroup& self)
    : options_(options),
      checkpoint_(checkpoint),
      dataset_(data.dataset_name),
      loss_(config.model.loss),
      roles_(data::roles_text(data.roles)),
      self_(self),
      times_(self, weather_options(data, trained, data.valid_data, data.valid_dates, options.steps)),
      normalization_(data::part_of(times_.normalization(), times_.channels().predicted())),
      grid_(data::joined_grid(times_.grid(), trained.grid)) {
  place_ = checked_start(config.model, data);
  in_file_ = times_.in_file(place_.row);
  for (const std::string& path : {options_.use.out, figures_path(options_)}) {
    refuse_inputs(path, "--out", data, checkpoint_);
    refuse_input(path, "--out", options_.climatology);
    if (is_store_name(path)) {
      refuse_existing_store(path, options_.use.overwrite);
    } else {
      refuse_existing(path, options_.use.overwrite);
    }
  }
  loss_weights_ = loss_weights(config.loss, config.model, data.stats, self,
                               {grid_, times_.channel_names(), !times_.given_channels().empty(), normalization_.std});
  require_trained_data(trained, checkpoint_, described(), data.valid_data);
  climatology_.emplace(data, options_.climatology, times_, self);
  const int64_t stride = times_.lead().rows;
  for (int64_t lead = 1; lead <= num_true_written(); ++lead) {
    const int64_t row = place_.row + lead * stride;
    climatology_->require({{row, row + 1}});
  }
  input_ = times_.input(place_);
  start_ = times_.read(place_.row);
  open_file();
}

TrainingData ForecastRecord::described() const {
  return description_of_fields(times_, roles_);
}

data::WeatherTimes::Place ForecastRecord::checked_start(const model::VitOptions& model, const DataConfig& data) const {
  const std::vector<int64_t> takes = {model.in_channels, model.image_height, model.image_width};
  if (times_.input_shape() != takes) {
    throw Error(ErrorClass::kUsage,
                str("the data in ", data.valid_data, " have states of ", shape_text(times_.input_shape()),
                    ", the model takes ", shape_text(takes)),
                kModelIsFixed);
  }
  if (options_.start >= times_.size()) {
    throw Error(ErrorClass::kUsage, str("--start is ", options_.start, "; allowed: 0 to ", times_.size() - 1,
                                        ", the times in ", options_.use.data));
  }
  const data::WeatherTimes::Place place = times_.place(options_.start);
  const int64_t before = place.row - place.run.begin;  // without a gap
  const int64_t rows = times_.lead().rows, needed = (times_.channels().history - 1) * rows;
  if (before < needed) {
    throw Error(
        ErrorClass::kUsage,
        str("the model takes ", times_.channels().history, " states, ", data::lead_text(times_.lead()),
            " apart, and before time ", options_.start, " there are ", before, " rows without a gap, not ", needed),
        str("give --start ", options_.start + needed - before, ", or a later one"));
  }
  if (!times_.forcings_are_constant() && options_.steps - 1 > place.after() / rows) {
    throw Error(ErrorClass::kUsage, str("--steps is ", options_.steps, "; allowed: 1 to ", place.after() / rows + 1,
                                        ": the model takes ", data::forcings_of_data(data.roles),
                                        " from the data, which end there or have a gap in their times"));
  }
  return place;
}

void ForecastRecord::open_file() {
  const std::vector<int64_t> shape = times_.target_shape();
  data::Hdf5DatasetSpec fields;
  fields.name = dataset_;
  fields.shape = {options_.steps, shape[0], shape[1], shape[2]};
  fields.attributes = {{"channels", join(times_.channel_names(), ",")}};
  const std::vector<std::string>& units = times_.units();
  if (std::find(units.begin(), units.end(), "") == units.end()) {
    fields.attributes.emplace_back("units", join(units, ","));
  }
  // Other programs cannot put the states of several arrays together: the file has all of it.
  const std::optional<data::StoredTimes> times = times_.times_of_arrays(rows_with_times());
  is_self_contained_ = times.has_value();
  std::vector<data::Hdf5DatasetSpec> specs = {fields};
  std::vector<Coordinate> own;
  if (is_self_contained_) {
    own = coordinates(*times);
    specs.push_back({kTruth, {1 + num_true_written(), shape[0], shape[1], shape[2]}, at::kFloat, {}});
    std::transform(own.begin(), own.end(), std::back_inserter(specs), [](const Coordinate& c) { return c.spec; });
  }
  data::Hdf5Attributes attributes = {{"start", options_.start},        {"source_file", times_.file_of(place_.row).path},
                                     {"source_time", in_file_.row},    {"dt", times_.lead().rows},
                                     {"num_true", num_true_written()}, {"checkpoint", checkpoint_}};
  if (is_self_contained_) {
    attributes.emplace_back("Conventions", std::string("CF-1.8"));
  }
  if (is_store_name(options_.use.out)) {
    open_store(own, attributes);
    return;
  }
  file_ = std::make_unique<data::Hdf5Writer>(self_, options_.use.out, specs, attributes);
  // Now, under the file's temporary name: what fails or dies meanwhile leaves no half file behind and loses no
  // forecast. All is known of the lead times.
  if (is_self_contained_) {
    write_coordinates(own);
    write_truth(0);
  } else {
    left_out_ = data::copy_hdf5_scales(scales_for(data::temporary_name(options_.use.out)));
  }
}

// By CF's conventions. Times behind the end of the run go on with its last interval.
std::vector<ForecastRecord::Coordinate> ForecastRecord::coordinates(const data::StoredTimes& times) {
  std::vector<Coordinate> out;
  const auto add = [&](const std::string& name, const std::vector<double>& values, data::Hdf5Attributes attributes) {
    if (!values.empty()) {
      const at::Tensor list = at::empty({std::ssize(values)}, at::kDouble);
      std::copy(values.begin(), values.end(), list.data_ptr<double>());
      out.push_back({{name, {std::ssize(values)}, at::kDouble, std::move(attributes)}, list});
    }
  };
  const int64_t stride = times_.lead().rows, first = rows_with_times().begin, last = rows_with_times().end - 1;
  const auto at = [&](int64_t row) { return times.values[static_cast<size_t>(row - first)]; };
  const double interval = last > first && !times.values.empty() ? at(last) - at(last - 1) : 0.0;
  std::vector<double> ahead, of_truth;
  for (int64_t lead = 0; !times.values.empty() && lead <= options_.steps; ++lead) {
    const int64_t row = place_.row + lead * stride;
    if (row > last && interval == 0.0) {
      left_out_.emplace_back("the times: they go beyond the only one that the data have before a gap or their end");
      ahead.clear();
      break;
    }
    const double time = row <= last ? at(row) : at(last) + static_cast<double>(row - last) * interval;
    (lead == 0 ? of_truth : ahead).push_back(time);
    if (lead > 0 && lead <= num_true_written()) {
      of_truth.push_back(time);
    }
  }
  data::Hdf5Attributes attributes = {{"standard_name", std::string("time")}};
  for (const auto& [name, text] : {std::pair("units", times.units), std::pair("calendar", times.calendar)}) {
    if (!text.empty()) {
      attributes.emplace_back(name, text);
    }
  }
  add(kTime, ahead, attributes);
  add(kTruthTime, ahead.empty() ? ahead : of_truth, attributes);
  const std::vector<std::string>& names = times_.channel_names();
  out.push_back({{.name = kChannel, .shape = {std::ssize(names)}, .texts = names}, {}});
  const auto add_points = [&](const char* name, const char* other, std::vector<double> points, int64_t count,
                              const char* units) {
    if (!points.empty()) {
      return add(name, points, {{"units", std::string(units)}, {"standard_name", std::string(name)}});
    }
    points.resize(static_cast<size_t>(count));
    std::iota(points.begin(), points.end(), 0.0);
    add(other, points, {{"long_name", str("number of the ", other)}});
  };
  add_points(kLatitude, kRow, times_.grid().latitudes, times_.target_shape()[1], "degrees_north");
  add_points(kLongitude, kColumn, times_.grid().longitudes, times_.target_shape()[2], "degrees_east");
  return out;
}

void ForecastRecord::write_coordinates(const std::vector<Coordinate>& coordinates) {
  for (const Coordinate& coordinate : coordinates) {
    if (coordinate.spec.texts.empty()) {
      file_->write(coordinate.spec.name, std::vector<int64_t>{0}, coordinate.values);
    }
  }
  const auto scaled = [&](const std::string& dataset, const std::string& time) {
    data::Hdf5Scaled of{dataset, {}};
    const std::vector<std::vector<std::string>> of_dims = {
        {time}, {kChannel}, {kLatitude, kRow}, {kLongitude, kColumn}};
    for (const std::vector<std::string>& names : of_dims) {
      auto& scales = of.scales.emplace_back();
      for (const Coordinate& coordinate : coordinates) {
        if (std::find(names.begin(), names.end(), coordinate.spec.name) != names.end()) {
          scales.push_back("/" + coordinate.spec.name);
        }
      }
    }
    return of;
  };
  data::attach_hdf5_scales(data::temporary_name(options_.use.out),
                           {scaled(dataset_, kTime), scaled(kTruth, kTruthTime)});
}

void ForecastRecord::open_store(const std::vector<Coordinate>& coordinates, const data::Hdf5Attributes& attributes) {
  if (!is_self_contained_) {
    throw Error(ErrorClass::kUsage,
                str("--out is '", options_.use.out, "', and the data have one dataset '", dataset_,
                    "', whose coordinates only an HDF5 file takes"),
                "give --out a name that ends with .nc or .h5");
  }
  std::vector<data::ZarrArray> arrays;
  const std::vector<int64_t> shape = times_.target_shape();
  const data::Grid& grid = times_.grid();
  const std::vector<std::string> of_fields = {grid.latitudes.empty() ? kRow : kLatitude,
                                              grid.longitudes.empty() ? kColumn : kLongitude};
  for (const auto& [dataset, time, rows] :
       {std::tuple(dataset_, kTime, options_.steps), {std::string(kTruth), kTruthTime, 1 + num_true_written()}}) {
    for (size_t c = 0; c < times_.channel_names().size(); ++c) {
      data::ZarrJson about = data::ZarrJson::object();
      if (!times_.units()[c].empty()) {
        about["units"] = times_.units()[c];
      }
      arrays.push_back(data::zarr_array_to_write(variable_of(dataset, c), {rows, shape[1], shape[2]},
                                                 {1, shape[1], shape[2]}, {time, of_fields[0], of_fields[1]},
                                                 at::kFloat, std::move(about)));
    }
  }
  std::vector<Coordinate> numbers;
  std::copy_if(coordinates.begin(), coordinates.end(), std::back_inserter(numbers),
               [](const Coordinate& coordinate) { return coordinate.spec.texts.empty(); });
  for (const Coordinate& coordinate : numbers) {
    const auto& [name, extents, type, about, texts] = coordinate.spec;
    arrays.push_back(data::zarr_array_to_write(name, extents, extents, {name}, type, zarr_attributes(about)));
  }
  store_ = std::make_unique<ForecastStore>(self_, options_.use.out, std::move(arrays), attributes);
  for (const Coordinate& coordinate : numbers) {
    store_->writer().write(coordinate.spec.name, std::array<int64_t, 1>{0}, coordinate.values);
  }
  write_truth(0);
}

std::string ForecastRecord::variable_of(const std::string& dataset, size_t channel) const {
  return times_.channel_names()[channel] + (dataset == dataset_ ? "" : "_truth");
}

void ForecastRecord::write(const std::string& dataset, int64_t row, const at::Tensor& fields) {
  if (file_) {
    file_->write(dataset, std::vector<int64_t>{row, 0, 0, 0}, fields.unsqueeze(0));
    return;
  }
  for (int64_t c = 0; c < fields.size(0); ++c) {
    store_->writer().write(variable_of(dataset, static_cast<size_t>(c)), std::array<int64_t, 3>{row, 0, 0},
                           fields.narrow(0, c, 1).contiguous());
  }
}

void ForecastRecord::write_truth(int64_t lead) {
  write(kTruth, lead, times_.read_stored(place_.row + lead * times_.lead().rows));
}

std::vector<std::string> ForecastRecord::description() const {
  const bool is_next_row = times_.lead().rows == 1;
  std::vector<std::string> lines = {str(options_.steps, " lead times ",
                                        is_next_row ? "" : str("of ", data::lead_text(times_.lead()), " "),
                                        "from time ", options_.start, " (", times_.file_of(place_.row).path, ", time ",
                                        in_file_.row, "); ACC against ", climatology_->text())};
  const int64_t known = num_true();
  if (known == 0) {
    const int64_t rows = place_.after();
    lines.push_back(str("the data end, or have a gap in their times, ",
                        rows == 0 ? "with this time" : str(counted(rows, "row"), " behind this time"),
                        ": none of the lead times has truth, and there are no figures"));
  } else if (known < options_.steps) {
    lines.push_back(str("the data end, or have a gap in their times, with lead time ", known, ": those from ",
                        known + 1, " to ", options_.steps, " have no truth and no figures"));
  }
  for (const std::string& line : left_out_) {
    lines.push_back("left out: " + line);
  }
  return lines;
}

void ForecastRecord::add(int64_t lead, const at::Tensor& prediction) {
  const MemoryScope scope(MemoryClass::kData);
  const at::Tensor fields = data::denormalize_field(prediction, normalization_);
  write(dataset_, lead - 1, fields);
  if (lead > num_true()) {
    return;
  }
  const int64_t row = place_.row + lead * times_.lead().rows;
  figures_.push_back(
      figures_of(loss_, loss_weights_, prediction, times_.read(row), start_, climatology_->read(row, 1), grid_));
  if (is_self_contained_) {
    write_truth(lead);
  }
}

Range ForecastRecord::rows_with_times() const {
  const int64_t end = place_.row + options_.steps * times_.lead().rows + 1;
  return {std::max(place_.run.begin, place_.row - 1), std::min(place_.run.end, end)};
}

Range ForecastRecord::run_in_file() const {
  const int64_t first = place_.row - in_file_.row;  // of the file
  const int64_t rows = times_.file_of(place_.row).layout.num_rows();
  return {std::max(place_.run.begin - first, int64_t{0}), std::min(place_.run.end - first, rows)};
}

data::Hdf5ScaleCopy ForecastRecord::scales_for(const std::string& path) const {
  const int64_t stride = times_.lead().rows;
  return {
      times_.file_of(place_.row).path, path, dataset_, in_file_.row + stride, options_.steps, stride, run_in_file()};
}

void ForecastRecord::finish() {
  if (store_) {
    store_->finish(options_.use.overwrite);
  } else {
    refuse_existing(options_.use.out, options_.use.overwrite);  // another forecast may have ended meanwhile
    file_->finish();
  }
  if (!is_self_contained_) {
    data::verify_hdf5_scales(scales_for(options_.use.out));
  }
  write_json_file(figures_path(options_), figures_json());
}

Json ForecastRecord::figures_json() const {
  Json json = {{"checkpoint", checkpoint_},
               {"start", options_.start},
               {"source_file", times_.file_of(place_.row).path},
               {"source_time", in_file_.row},
               {"steps", options_.steps},
               {"dt", times_.lead().rows},
               {"dt_hours", times_.lead().hours},
               {"rmse_unit", "standard deviations"},
               {"acc_against", climatology_->text()}};
  Json& channels = json["channels"] = Json::array();
  for (size_t c = 0; c < times_.channel_names().size(); ++c) {
    channels.push_back({{"name", times_.channel_names()[c]},
                        {"unit", times_.units()[c]},
                        {"standard_deviation", normalization_.std[c]}});
  }
  Json& leads = json["leads"] = Json::array();
  for (size_t i = 0; i < figures_.size(); ++i) {
    Json lead = {{"lead", i + 1}};
    lead.update(to_json(figures_[i], times_.channel_names()));
    leads.push_back(std::move(lead));
  }
  return json;
}

std::vector<std::string> ForecastRecord::table_lines() const {
  if (figures_.empty()) {
    return {"no lead time has truth: no figures"};
  }
  const auto row = [](const std::string& lead, const std::vector<std::string>& cells) {
    std::string out = right_text(lead, 6);
    for (const std::string& cell : cells) {
      out += right_text(cell, 14);
    }
    return out;
  };
  std::vector<std::string> lines = {row("lead", {"loss", "RMSE", "persistence", "ACC", "persistence"})};
  for (size_t i = 0; i < figures_.size(); ++i) {
    const Evaluation& at_lead = figures_[i];
    std::vector<std::string> cells;
    for (const double value : {at_lead.loss, mean_of(at_lead.rmse), mean_of(at_lead.persistence_rmse),
                               mean_of(at_lead.acc), mean_of(at_lead.persistence_acc)}) {
      cells.push_back(fixed_text(value, 6));
    }
    lines.push_back(row(std::to_string(i + 1), cells));
  }
  lines.push_back("RMSE and ACC are means over the channels, RMSE in standard deviations");
  return lines;
}

void check_rollout(const model::VitOptions& model, const data::FieldRoles& roles, int64_t steps) {
  if (model.task != model::Task::kForecast) {
    throw Error(ErrorClass::kUsage, "the checkpoint's model classifies images (--task classify), it makes no forecast",
                "give the checkpoint of a model that was trained with --task forecast; 'evaluate' takes both");
  }
  if (steps > 1 && channels_of(model, roles).inputs() != model.in_channels) {
    const std::string beside = data::roles_text(roles);
    throw Error(ErrorClass::kUsage,
                str("the model takes ", model.in_channels, " channels and gives ", model.out_channels,
                    beside.empty() ? "" : str(" (", beside, ")"), ", so its output cannot be its next input"));
  }
}

void check_forecast(const StepConfig& config, const data::FieldRoles& roles, const ForecastOptions& options) {
  check_rollout(config.model, roles, std::max<int64_t>(options.steps, 2));
  if (config.parallel.dp > 1) {
    const int ranks = config.parallel.dp * config.parallel.model_size();
    throw Error(ErrorClass::kUsage,
                str("--dp is ", config.parallel.dp, ": a forecast is one trajectory, which replicas cannot share"),
                str("start ", counted(config.parallel.model_size(), "rank"),
                    ", or give --tp and --pp whose product is ", ranks));
  }
  const std::string& out = options.use.out;
  if (!out.ends_with(".h5") && !out.ends_with(".nc") && !is_store_name(out)) {
    throw Error(ErrorClass::kUsage, str("--out is '", out, "'; allowed: a name that ends with .nc, .h5 or .zarr"),
                "its figures get the same name with .json");
  }
}

void forecast(const RunConfig& config, const ForecastOptions& options, const CheckpointReader& checkpoint,
              const comm::MpiGroup& world) {
  const comm::MpiGroup self = comm::MpiGroup::alone();
  std::optional<ForecastRecord> record;  // on rank 0
  comm::agreed_on_rank_0(world, [&] {
    require_room(config.model, options);
    record.emplace(config, config.data, options, checkpoint.path(), checkpoint.info(), self);
  });
  TrainedModel model(config, config.data, checkpoint, world);
  announce(config.name, config, checkpoint, model.mesh().device());
  for (const std::string& line : record ? record->description() : std::vector<std::string>()) {
    log_line("  " + line);
  }
  if (record) {
    warn_of_use(config.data, checkpoint, record->described());
  }
  const Timer timer;
  const data::SampleChannels channels = channels_of(config.model, config.data.roles);
  data::Normalization rows = record ? record->normalization() : data::Normalization::identity(channels.row());
  for (std::vector<double>* const values : {&rows.mean, &rows.std}) {
    world.broadcast(values->data(), std::ssize(*values) * static_cast<int64_t>(sizeof(double)), 0);
  }
  // World rank 0 is the one that has the states.
  Rollout rollout(model.runner(), model.mesh(), config.model, channels,
                  increments_of(checkpoint.info(), rows, channels));
  rollout.begin(1, record ? record->input().unsqueeze(0) : at::Tensor());
  Progress progress(str("forecasting ", options.steps, " lead times"), options.steps);
  for (int64_t lead = 1; lead <= options.steps; ++lead, progress.add()) {
    if (lead > 1 && channels.forcings + channels.computed > 0) {
      at::Tensor forcings;
      comm::agreed_on_rank_0(world, [&] { forcings = record->forcings(lead - 1).unsqueeze(0); });
      rollout.force(forcings);
    }
    const at::Tensor states = rollout.advance();
    comm::agreed_on_rank_0(world, [&] { record->add(lead, states[0].to(at::kFloat)); });
  }
  comm::agreed_on_rank_0(world, [&] { record->finish(); });
  if (record) {
    log_lines(record->table_lines());
  }
  log_line(
      str("wrote ", options.use.out, " and ", figures_path(options), " in ", fixed_text(timer.seconds(), 2), " s"));
}

}  // namespace vit_hybrid::train
