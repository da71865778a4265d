// Starts in batches, their rollouts by replica, and the files of the scores.
#include "src/infer/lead_evaluation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <future>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "data/hdf5/hdf5_scales.h"
#include "data/hdf5/hdf5_writer.h"
#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/base/utf8.h"
#include "src/config/model_options.h"
#include "src/infer/climatology.h"
#include "src/infer/evaluate.h"
#include "src/infer/forecast.h"
#include "src/infer/rollout.h"
#include "src/train/data_source.h"

namespace vit_hybrid::train {

namespace {

// Each above 0 and once, in ascending order. Error(kUsage).
std::vector<double> parse_leads(const char* option, const std::string& text, bool are_whole) {
  std::vector<double> leads;
  for (const std::string& part : data::split_channels(text)) {
    double lead = 0.0;
    const char* const end = part.data() + part.size();
    const auto [read_end, problem] = std::from_chars(part.data(), end, lead);
    constexpr double kMost = 1e6;
    if (problem != std::errc() || read_end != end || !(lead > 0.0 && lead <= kMost) ||
        (are_whole && lead != std::floor(lead))) {
      throw Error(ErrorClass::kUsage,
                  str(option, " has '", shown(part), "'; allowed: ", are_whole ? "whole numbers" : "numbers", " up to ",
                      kMost, " with commas between them"));
    }
    leads.push_back(lead);
  }
  std::sort(leads.begin(), leads.end());
  if (const auto same = std::adjacent_find(leads.begin(), leads.end()); same != leads.end()) {
    throw Error(ErrorClass::kUsage, str(option, " has ", *same, " twice"));
  }
  return leads;
}

// `lead` of the model. Error(kUsage) for hours that it cannot reach.
std::vector<ScoredLead> scored_leads(const LeadOptions& options, const data::Lead& lead) {
  std::vector<ScoredLead> leads;
  if (options.hours.empty()) {
    for (const double steps : parse_leads("--lead-steps", options.steps.empty() ? "1" : options.steps, true)) {
      leads.push_back({static_cast<int64_t>(steps), steps * lead.hours});
    }
    return leads;
  }
  if (!(lead.hours > 0.0)) {
    throw Error(ErrorClass::kUsage, "--lead-hours needs data whose times are dates",
                "give --lead-steps, the leads in applications of the model");
  }
  for (const double hours : parse_leads("--lead-hours", options.hours, false)) {
    const double steps = std::round(hours / lead.hours);
    if (steps < 1.0 || std::abs(steps * lead.hours - hours) > 1e-6 * hours) {
      throw Error(ErrorClass::kUsage, str("--lead-hours has ", hours, "; allowed: multiples of ", lead.hours,
                                          ", the hours that the model predicts ahead"));
    }
    leads.push_back({static_cast<int64_t>(steps), hours});
  }
  return leads;
}

// Starts that follow each other and have a truth at as many leads.
struct StartBatch {
  Range rows;
  Range run;
  size_t leads;

  data::WeatherTimes::Place place(int64_t i) const { return {rows.begin + i, run}; }
};

// At most `most` starts, in batches of up to `size` ones. Error(kBadData) where there is none, or none for some lead.
std::vector<StartBatch> start_batches(const data::WeatherTimes& times, const std::vector<ScoredLead>& leads,
                                      int64_t size, int64_t most) {
  const int64_t rows = times.lead().rows, before = (times.channels().history - 1) * rows;
  std::vector<StartBatch> batches;
  size_t reached = 0;
  int64_t taken = 0, longest = 0;
  for (size_t i = 0; i < times.runs().size(); ++i) {
    const Range run = times.runs()[i], starts = times.starts()[i];
    const int64_t first = std::max(run.begin + before, starts.begin);
    longest = std::max(longest, first < starts.end ? (run.end - 1 - first) / rows : 0);
    for (int64_t start = first; start < starts.end && taken < most; ++start) {
      const auto end = std::find_if(leads.begin(), leads.end(),
                                    [&](const ScoredLead& lead) { return start + lead.steps * rows >= run.end; });
      const auto count = static_cast<size_t>(end - leads.begin());
      if (count == 0) {
        break;
      }
      reached = std::max(reached, count);
      ++taken;
      const bool goes_on = !batches.empty() && batches.back().run == run && batches.back().rows.end == start &&
                           batches.back().leads == count && batches.back().rows.size() < size;
      if (goes_on) {
        ++batches.back().rows.end;
      } else {
        batches.push_back({{start, start + 1}, run, count});
      }
    }
  }
  if (reached < leads.size()) {
    throw Error(ErrorClass::kBadData,
                str("no start has a truth ", lead_text(leads[reached]),
                    " ahead: without a gap the "
                    "data go ",
                    counted(longest, "step"), " ahead at most"),
                reached > 0 ? "leave this lead out, or give data of a longer time" : "give data of a longer time");
  }
  return batches;
}

void check_shape(const model::VitOptions& model, const std::string& folder, const data::WeatherTimes& times) {
  const std::vector<int64_t> takes = {model.in_channels, model.image_height, model.image_width};
  if (times.input_shape() != takes) {
    throw Error(ErrorClass::kUsage,
                str("the data in ", folder, " have states of (", join(times.input_shape()), "), the model takes (",
                    join(takes), ")"),
                kModelIsFixed);
  }
}

// By row: that of a start at one lead is that of another start at another.
using PowerCache = data::LruCache<at::Tensor>;
constexpr size_t kMostPowers = 256;

// What is read for a step of the forecasts of a batch.
struct StepFields {
  at::Tensor inputs;  // of the model: all of them before the first step (step 0), then those that it does not predict
  at::Tensor truth;   // at step 0 and where there is a lead
  at::Tensor climatology;  // where there is a lead
};

// Fields of batches step by step, each read beside what is done with the one before, where files are read without HDF5.
class StepReader {
 public:
  enum class Manner { kAhead, kWhenNeeded };

  StepReader(Manner manner, const std::vector<StartBatch>& batches, const std::vector<ScoredLead>& leads,
             const data::WeatherTimes& times, const Climatology& climatology)
      : times_(times), climatology_(climatology), is_ahead_(manner == Manner::kAhead) {
    for (const StartBatch& batch : batches) {
      steps_.push_back({&batch, 0, false});
      for (size_t lead = 0, step = 1; lead < batch.leads; ++step) {
        const auto number = static_cast<int64_t>(step);
        const bool has_lead = leads[lead].steps == number;
        if (has_lead || is_forced(number)) {
          steps_.push_back({&batch, number, has_lead});
        }
        lead += has_lead ? 1 : 0;
      }
    }
    begin_next();
  }

  // Whether the model takes something at a step behind step 0 that it does not predict.
  bool is_forced(int64_t step) const { return step > 1 && times_.channels().forcings + times_.channels().computed > 0; }

  // Of step 0, of each that is forced, and of each with a lead, batch by batch.
  StepFields next() {
    if (!ahead_.valid()) {
      return read(steps_[num_begun_++]);
    }
    constexpr std::chrono::milliseconds kBetweenNotes{100};
    while (ahead_.wait_for(kBetweenNotes) != std::future_status::ready) {
      comm::note_work_of_helpers();
    }
    StepFields fields = ahead_.get();
    begin_next();
    return fields;
  }

 private:
  struct Step {
    const StartBatch* batch;
    int64_t number;
    bool has_lead;
  };

  void begin_next() {
    if (is_ahead_ && num_begun_ < steps_.size()) {
      ahead_ = std::async(std::launch::async, [this, step = steps_[num_begun_++]] {
        use_allowed_processors();
        omp_set_num_threads(1);  // the others compute
        const MemoryTracker::Attachment attachment;
        return read(step);
      });
    }
  }

  StepFields read(const Step& step) const {
    const MemoryScope scope(MemoryClass::kData);
    const Range& starts = step.batch->rows;
    const int64_t ahead = step.number * times_.lead().rows;
    const auto gather = [&](const auto& read_of) {
      std::vector<at::Tensor> fields;
      for (int64_t i = 0; i < starts.size(); ++i) {
        fields.push_back(read_of(step.batch->place(i)));
      }
      return at::stack(fields);
    };
    StepFields fields;
    if (step.number == 0) {
      fields.inputs = gather([&](const auto& place) { return times_.input(place); });
    } else if (is_forced(step.number)) {
      fields.inputs = gather([&](const auto& place) { return times_.forcings(place, ahead - times_.lead().rows); });
    }
    if (step.number == 0 || step.has_lead) {
      fields.truth = gather([&](const auto& place) { return times_.read(place.row + ahead); });
    }
    if (step.has_lead) {
      fields.climatology = climatology_.read(starts.begin + ahead, starts.size());
    }
    return fields;
  }

  const data::WeatherTimes& times_;
  const Climatology& climatology_;
  bool is_ahead_;
  std::vector<Step> steps_;
  size_t num_begun_ = 0;
  std::future<StepFields> ahead_;  // ends before the others
};

// The forecasts of a batch of starts, scored where the states are. Collective over the replica.
void score_batch(const StartBatch& batch, const std::vector<ScoredLead>& leads, int64_t rows, StepReader& reader,
                 Rollout& rollout, PowerCache& truth_powers, LeadSums& sums) {
  const MemoryScope scope(MemoryClass::kData);
  const int64_t count = batch.rows.size();
  const auto next = [&] { return rollout.has_states() ? reader.next() : StepFields(); };
  const StepFields start = next();
  rollout.begin(count, start.inputs);
  size_t lead = 0;
  for (int64_t step = 1; lead < batch.leads; ++step) {
    comm::note_work();
    const bool has_lead = step == leads[lead].steps, is_forced = reader.is_forced(step);
    const StepFields fields = has_lead || is_forced ? next() : StepFields();
    if (is_forced) {
      rollout.force(fields.inputs);
    }
    const at::Tensor states = rollout.advance();
    if (!has_lead) {
      continue;
    }
    if (rollout.has_states()) {
      const int64_t first = batch.rows.begin + step * rows;
      std::vector<at::Tensor> powers;
      for (int64_t i = 0; i < count; ++i) {
        powers.push_back(
            *truth_powers.get(first + i, [&] { return std::make_unique<at::Tensor>(sums.power(fields.truth[i])); }));
      }
      sums.add(lead, states, fields.truth, at::stack(powers), start.truth, fields.climatology);
    }
    ++lead;
  }
}

at::Tensor list_of_numbers(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

// Variables (lead, channel) and (lead, channel, wavenumber), by the data model of netCDF-4. For one rank.
void write_netcdf(const std::string& path, const std::vector<LeadFigures>& figures,
                  const std::vector<std::string>& channels, const std::vector<std::string>& units, const Json& about) {
  const bool has_hours = figures.front().lead.hours > 0.0;
  std::vector<double> leads, samples, wavenumbers(static_cast<size_t>(figures.front().spectrum.size(1)));
  std::iota(wavenumbers.begin(), wavenumbers.end(), 0.0);
  for (const LeadFigures& at_lead : figures) {
    leads.push_back(has_hours ? at_lead.lead.hours : static_cast<double>(at_lead.lead.steps));
    samples.push_back(static_cast<double>(at_lead.samples));
  }
  struct Variable {
    data::Hdf5DatasetSpec spec;
    at::Tensor values;
    std::vector<std::string> dims;  // empty: it is a dim itself
  };
  std::vector<Variable> variables;
  const auto add = [&](const std::string& name, const at::Tensor& values, data::Hdf5Attributes attributes,
                       std::vector<std::string> dims) {
    variables.push_back({{name, values.sizes().vec(), at::kDouble, std::move(attributes)}, values, std::move(dims)});
  };
  // xarray would make durations of a variable in hours.
  add("lead", list_of_numbers(leads),
      {{"long_name", std::string(has_hours ? "lead time in hours" : "lead in applications of the model")}}, {});
  add("wavenumber", list_of_numbers(wavenumbers), {{"long_name", std::string("zonal wavenumber")}}, {});
  variables.push_back({{.name = "channel", .shape = {std::ssize(channels)}, .texts = channels}, {}, {}});
  variables.push_back({{.name = "unit", .shape = {std::ssize(units)}, .texts = units}, {}, {"channel"}});
  add("samples", list_of_numbers(samples), {{"long_name", std::string("number of starts")}}, {"lead"});
  const auto add_all = [&](const char* name, const auto& part, const std::vector<std::string>& dims) {
    std::vector<at::Tensor> parts;
    std::transform(figures.begin(), figures.end(), std::back_inserter(parts), part);
    add(name, at::stack(parts).contiguous(), {}, dims);
  };
  for (int64_t score = 0; score < kNumFieldScores; ++score) {
    add_all(kFieldScoreNames[static_cast<size_t>(score)],
            [score](const LeadFigures& at_lead) { return at_lead.scores.select(1, score); }, {"lead", "channel"});
  }
  const std::vector<std::string> dims = {"lead", "channel", "wavenumber"};
  add_all(
      "spectrum", [](const LeadFigures& at_lead) { return at_lead.spectrum; }, dims);
  add_all(
      "truth_spectrum", [](const LeadFigures& at_lead) { return at_lead.truth_spectrum; }, dims);

  std::vector<data::Hdf5DatasetSpec> specs;
  std::vector<data::Hdf5Scaled> scaled;
  for (const Variable& variable : variables) {
    specs.push_back(variable.spec);
    if (!variable.dims.empty()) {
      data::Hdf5Scaled& of = scaled.emplace_back(data::Hdf5Scaled{variable.spec.name, {}});
      std::transform(variable.dims.begin(), variable.dims.end(), std::back_inserter(of.scales),
                     [](const std::string& dim) { return std::vector{"/" + dim}; });
    }
  }
  data::Hdf5Attributes attributes = {{"Conventions", std::string("CF-1.8")}};
  for (const auto& [name, value] : about.items()) {
    attributes.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  const comm::MpiGroup self = comm::MpiGroup::alone();
  data::Hdf5Writer file(self, path, specs, attributes);
  for (const Variable& variable : variables) {
    if (variable.spec.texts.empty()) {
      file.write(variable.spec.name, std::vector<int64_t>(variable.spec.shape.size(), 0), variable.values);
    }
  }
  data::attach_hdf5_scales(data::temporary_name(path), scaled);
  file.finish();
}

// By the end of its name. For one rank.
void write_figures(const std::string& path, const std::vector<LeadFigures>& figures,
                   const std::vector<std::string>& channels, const std::vector<std::string>& units, Json about) {
  if (path.ends_with(".nc")) {
    write_netcdf(path, figures, channels, units, about);
    return;
  }
  for (size_t c = 0; c < channels.size(); ++c) {
    about["units"][channels[c]] = units[c];
  }
  about["leads"] = to_json(figures, channels);
  write_json_file(path, about);
}

int64_t num_starts(const std::vector<StartBatch>& batches) {
  return std::accumulate(batches.begin(), batches.end(), int64_t{0},
                         [](int64_t sum, const StartBatch& batch) { return sum + batch.rows.size(); });
}

// This replica's share of the batches. Collective over the replica.
void score_starts(const RunConfig& config, const CheckpointInfo& trained, const data::WeatherTimes& times,
                  const Climatology& climatology, const std::vector<StartBatch>& batches,
                  const std::vector<ScoredLead>& leads, TrainedModel& model, LeadSums& sums) {
  const data::SampleChannels& channels = times.channels();
  Rollout rollout(model.runner(), model.mesh(), config.model, channels,
                  increments_of(trained, times.normalization(), channels));
  const auto& replicas = model.mesh().data();
  std::vector<StartBatch> own;
  for (auto i = static_cast<size_t>(replicas.rank()); i < batches.size(); i += static_cast<size_t>(replicas.size())) {
    own.push_back(batches[i]);
  }
  const bool reads_ahead =
      rollout.has_states() && config.data.io_threads != 0 && times.background_reads() && climatology.background_reads();
  StepReader reader(reads_ahead ? StepReader::Manner::kAhead : StepReader::Manner::kWhenNeeded, own, leads, times,
                    climatology);
  PowerCache truth_powers(kMostPowers);
  const int64_t starts = num_starts(batches);
  Progress progress(str("evaluating ", starts, " forecasts"), starts);
  for (const StartBatch& batch : own) {
    score_batch(batch, leads, times.lead().rows, reader, rollout, truth_powers, sums);
    progress.add(batch.rows.size() * replicas.size());
  }
}

}  // namespace

void check_leads(const model::VitOptions& model, const data::FieldRoles& roles, const LeadOptions& options) {
  if (!options.hours.empty() && !options.steps.empty()) {
    throw Error(ErrorClass::kUsage, "--lead-hours and --lead-steps are two words for the leads", "give one of them");
  }
  if (!options.hours.empty()) {
    parse_leads("--lead-hours", options.hours, false);
  }
  if (!options.steps.empty()) {
    parse_leads("--lead-steps", options.steps, true);
  }
  check_rollout(model, roles, 1);
}

std::vector<LeadFigures> evaluate_leads(const RunConfig& config, const ModelUse& use, const LeadOptions& options,
                                        const CheckpointReader& checkpoint, const comm::MpiGroup& world) {
  const CheckpointInfo& trained = checkpoint.info();
  comm::agreed_on_rank_0(world, [&] {
    if (!use.out.empty()) {
      check_output(use.out, "--out", use.overwrite, config.data, checkpoint.path());
      if (!options.climatology.empty()) {
        refuse_input(use.out, "--out", options.climatology);
      }
    }
  });
  const double last_hours = options.hours.empty() ? 0.0 : parse_leads("--lead-hours", options.hours, false).back();
  const double last_steps = options.steps.empty() ? 1.0 : parse_leads("--lead-steps", options.steps, true).back();
  const data::WeatherTimes times(world, weather_options(config.data, trained, config.data.valid_data,
                                                        config.data.valid_dates, std::llround(last_steps), last_hours));
  const TrainingData described = description_of_fields(times, data::roles_text(config.data.roles));
  comm::agreed(world, [&] {
    require_trained_data(trained, checkpoint.path(), described, config.data.valid_data);
    check_shape(config.model, config.data.valid_data, times);
  });
  const Climatology climatology(config.data, options.climatology, times, world);
  std::vector<ScoredLead> leads;
  std::vector<StartBatch> batches;
  comm::agreed(world, [&] {
    leads = scored_leads(options, times.lead());
    check_rollout(config.model, config.data.roles, leads.back().steps);
    const int64_t limit = config.data.limit_nsamples_val;
    batches = start_batches(times, leads, config.parallel.micro_batch_size,
                            limit > 0 ? limit : std::numeric_limits<int64_t>::max());
    climatology.require(times.runs());
  });
  const std::vector<int64_t> shape = times.target_shape();
  const data::Normalization units = data::part_of(times.normalization(), times.channels().predicted());
  const data::Grid grid = data::joined_grid(times.grid(), trained.grid);
  TrainedModel model(config, config.data, checkpoint, world);
  announce(config.name, config, checkpoint, model.mesh().device());
  const int64_t starts = num_starts(batches);
  log_line(str("  input     ", counted(starts, "start"), " in ", config.data.valid_data, ", to ",
               counted(leads.back().steps, "step"), " ahead; ACC against ", climatology.text()));
  warn_of_use(config.data, checkpoint, described);
  const Timer timer;
  LeadSums sums(options.rules, leads, grid, units, shape[1], shape[2]);
  score_starts(config, trained, times, climatology, batches, leads, model, sums);
  const at::Tensor total = sums.sums().clone();
  model.mesh().host_world().all_reduce(total, comm::ReduceOp::kSum).wait();
  std::vector<LeadFigures> figures = sums.finish(total);
  const double seconds = timer.seconds();
  const bool has_units = options.rules == ScoreRules::kWeatherBench;
  log_lines(table_lines(figures, times.channel_names()));
  log_line(has_units ? "RMSE, bias and activity in the units of the data"
                     : "RMSE, bias and activity in standard deviations of each channel");
  log_line(str("evaluated in ", fixed_text(seconds, 2), " s, ", fixed_text(static_cast<double>(starts) / seconds, 2),
               " forecasts/s"));
  comm::agreed_on_rank_0(world, [&] {
    if (use.out.empty()) {
      return;
    }
    const Json about = {{"checkpoint", checkpoint.path()},
                        {"step", trained.step},
                        {"data", config.data.valid_data},
                        {"precision", precision_name(config.precision.kind)},
                        {"scores", has_units ? "weatherbench" : "reference"},
                        {"acc_against", climatology.text()}};
    std::vector<std::string> in_units = times.units();
    if (!has_units) {
      std::fill(in_units.begin(), in_units.end(), "standard deviations");
    }
    write_figures(use.out, figures, times.channel_names(), in_units, about);
  });
  if (!use.out.empty()) {
    log_line("wrote " + use.out);
  }
  return figures;
}

}  // namespace vit_hybrid::train
