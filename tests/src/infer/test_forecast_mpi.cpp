// The command `forecast`: fields, figures and refusals, against a plain loop over the reference model.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "data/datasets/coordinates.h"
#include "data/datasets/npy.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_rows.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/infer/evaluate.h"
#include "src/infer/forecast.h"
#include "src/infer/forecast_store.h"
#include "tests/support/compare.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/model_use_harness.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using train::Json;
using train::RunConfig;

namespace {

NamedTensors parameters_of(const train::CheckpointReader& checkpoint) {
  NamedTensors out;
  for (const auto& entry : checkpoint.tensors()) {
    const std::string prefix = "parameters/";
    if (entry.path.starts_with(prefix)) {
      out[entry.path.substr(prefix.size())] = checkpoint.read(entry.path).to(at::kDouble);
    }
  }
  return out;
}

train::ForecastOptions forecast_options(const std::string& checkpoint, const std::string& data,
                                        const std::string& out) {
  train::ForecastOptions options;
  options.use.checkpoint = checkpoint;
  options.use.data = data;
  options.use.out = out;
  options.steps = 3;
  return options;
}

// Normalised as the program does: in float32.
at::Tensor normalised(const at::Tensor& fields) {
  return ((fields - weather_means().to(at::kFloat)) / weather_stds().to(at::kFloat)).to(at::kDouble);
}

}  // namespace

TEST_CASE("forecast: fields and figures are those of a plain loop over the reference model, in any layout") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_weather(world, folder.file("data"));
  const RunConfig trained = weather_config(folder.file("data"), {1, 1, 1}, train::Precision::kFp64);
  save_initial_model(world, trained, folder.file("c.h5"));
  const at::Tensor truth = normalised(weather_fields(2));
  constexpr int64_t kStart = 2;  // in the second file

  at::Tensor expected;  // [3, C, H, W], normalised
  if (world.rank() == 0) {
    const train::CheckpointReader checkpoint(folder.file("c.h5"));
    ReferenceVit reference(trained.model, at::kDouble, parameters_of(checkpoint));
    at::Tensor state = truth[kStart].unsqueeze(0);
    std::vector<at::Tensor> states;
    for (int lead = 0; lead < 3; ++lead) {
      state = reference.forward(state, test_context(1, Mode::kEvaluation)).detach();
      states.push_back(state);
    }
    expected = at::cat(states);
  }
  for (const int ranks : {1, 2, 4, 8}) {
    if (ranks > world.size()) continue;
    const comm::MpiGroup group = world.split(world.rank() < ranks ? 0 : 1);
    for (const Layout& layout : {Layout{1, ranks, 1}, Layout{1, std::max(ranks / 2, 1), std::min(ranks, 2)},
                                 Layout{1, std::max(ranks / 4, 1), std::min(ranks, 4)}}) {
      CAPTURE(layout.text());
      if (world.rank() < ranks) {
        const train::CheckpointReader checkpoint(group, folder.file("c.h5"));
        RunConfig config = weather_config(folder.file("data"), layout, train::Precision::kFp64);
        config.loss = {.latitude_weights = true, .channel_weights = "z500=4"};
        train::ForecastOptions options =
            forecast_options(folder.file("c.h5"), folder.file("data"), folder.file("forecast.h5"));
        options.start = kWeatherTimes + kStart;
        options.use.overwrite = true;
        train::forecast(config, options, checkpoint, group);
      }
      if (world.rank() == 0) {
        const at::Tensor fields = data::read_whole_dataset(folder.file("forecast.h5"), "fields");
        REQUIRE(fields.sizes().vec() == std::vector<int64_t>{3, 3, 12, 20});
        CHECK((fields.scalar_type() == at::kFloat));
        for (int64_t c = 0; c < 3; ++c) {
          const double mean = weather_means().to(at::kFloat)[0][c].item<double>();
          const double std = weather_stds().to(at::kFloat)[0][c].item<double>();
          CHECK(relative_error((fields.select(1, c).to(at::kDouble) - mean) / std, expected.select(1, c)) <= 1e-5);
        }
        CHECK(data::inspect_dataset(folder.file("forecast.h5"), "fields", "channels").attribute == "u10,z500,r500");
        CHECK(data::inspect_dataset(folder.file("forecast.h5"), "fields", "units").attribute == "m/s,m2/s2,%");
        const Json json = read_json(folder.file("forecast.json"));
        REQUIRE(json["leads"].size() == 3);
        CHECK(json["source_time"].get<int64_t>() == kStart);
        const at::Tensor weights = at::tensor(data::latitude_weights({}, 12), at::kDouble).reshape({12, 1});
        const at::Tensor of_loss = weights * at::tensor({0.5, 2.0, 0.5}, at::kDouble).view({3, 1, 1});
        for (int64_t lead = 1; lead <= 3; ++lead) {
          const auto norm = [&](const at::Tensor& x) { return (x.square() * of_loss).sum().sqrt().item<double>(); };
          const at::Tensor& true_state = truth[kStart + lead];
          CHECK(json["leads"][static_cast<size_t>(lead - 1)]["loss"].get<double>() ==
                doctest::Approx(norm(expected[lead - 1] - true_state) / norm(true_state)).epsilon(1e-5));
          for (int64_t c = 0; c < 3; ++c) {
            const auto rmse = [&](const at::Tensor& yhat) {
              return ((yhat - truth[kStart + lead][c]).square() * weights).mean().sqrt().item<double>();
            };
            const Json& figures = json["leads"][static_cast<size_t>(lead - 1)];
            const std::string& name = weather_channels()[static_cast<size_t>(c)];
            CHECK(figures["rmse"][name].get<double>() == doctest::Approx(rmse(expected[lead - 1][c])).epsilon(1e-5));
            CHECK(figures["persistence_rmse"][name].get<double>() ==
                  doctest::Approx(rmse(truth[kStart][c])).epsilon(1e-6));
          }
        }
      }
      world.barrier();
    }
  }
}

TEST_CASE("forecast: the first lead time has the figures of an evaluation of the same sample") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_weather(world, folder.file("data"));
  const Layout layout{1, world.size(), 1};
  RunConfig config = weather_config(folder.file("data"), layout, train::Precision::kFp32);
  config.loss = {.latitude_weights = true, .channel_weights = "z500=4"};
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  train::forecast(config, forecast_options(folder.file("c.h5"), folder.file("data"), folder.file("f.h5")), checkpoint,
                  world);
  config.data.limit_nsamples_val = 1;
  const train::Evaluation figures = train::evaluate(config, {}, checkpoint, world);
  const Json lead = read_json(folder.file("f.json"))["leads"][0];
  CHECK(lead["loss"].get<double>() == doctest::Approx(figures.loss).epsilon(1e-6));
  for (size_t c = 0; c < weather_channels().size(); ++c) {
    CHECK(lead["rmse"][weather_channels()[c]].get<double>() == doctest::Approx(figures.rmse[c]).epsilon(1e-12));
    CHECK(lead["acc"][weather_channels()[c]].get<double>() == doctest::Approx(figures.acc[c]).epsilon(1e-12));
  }
}

TEST_CASE("forecast: truth ends with its file, the forecast does not") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_weather(world, folder.file("data"));
  const RunConfig config =
      weather_config(folder.file("data"), {1, 1, world.size() > 4 ? 4 : world.size()}, train::Precision::kFp32);
  if (config.parallel.model_size() != world.size()) return;
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  for (const int64_t known : {1, 0}) {
    train::ForecastOptions options = forecast_options(folder.file("c.h5"), folder.file("data"), folder.file("f.h5"));
    options.start = kWeatherTimes - 1 - known;  // near the end of the first file
    options.use.overwrite = true;
    train::forecast(config, options, checkpoint, world);
    if (world.rank() == 0) {
      CHECK(read_json(folder.file("f.json"))["leads"].size() == static_cast<size_t>(known));
      CHECK(data::read_whole_dataset(folder.file("f.h5"), "fields").size(0) == 3);
    }
    world.barrier();
  }
}

TEST_CASE("forecast: half-length types give the fields of fp32 to their rounding, through every stage") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_weather(world, folder.file("data"));
  const Layout layout{1, 1, world.size() > 4 ? 4 : world.size()};
  RunConfig config = weather_config(folder.file("data"), layout, train::Precision::kFp32);
  if (config.parallel.model_size() != world.size()) return;
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  at::Tensor reference;
  for (const auto precision : {train::Precision::kFp32, train::Precision::kBf16, train::Precision::kFp16}) {
    CAPTURE(train::precision_name(precision));
    config.precision.kind = precision;
    train::ForecastOptions options = forecast_options(folder.file("c.h5"), folder.file("data"), folder.file("f.h5"));
    options.use.overwrite = true;
    train::forecast(config, options, checkpoint, world);
    if (world.rank() == 0) {
      const at::Tensor fields = data::read_whole_dataset(folder.file("f.h5"), "fields");
      reference = reference.defined() ? reference : fields;
      // An untrained model of few layers: the rounding of its numbers, 2^-9 and 2^-11 of them, a few times over.
      const double bound = precision == train::Precision::kBf16 ? 0.05 : 0.0125;
      CHECK(relative_error(fields, reference) <= bound);
      CHECK((precision == train::Precision::kFp32) == fields.equal(reference));
    }
    world.barrier();
  }
}

TEST_CASE("forecast: what cannot be is refused on all ranks, before any file is made") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const ScratchFolder other(world);
  write_weather(world, folder.file("data"));
  const RunConfig config = weather_config(folder.file("data"), {1, world.size(), 1}, train::Precision::kFp32);
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  const train::ForecastOptions good = forecast_options(folder.file("c.h5"), folder.file("data"), folder.file("f.h5"));
  const auto refused = [&](const RunConfig& run, const train::ForecastOptions& options, ErrorClass error_class,
                           const std::string& text) {
    const Error error = agreed_error(world, [&] { train::forecast(run, options, checkpoint, world); });
    CAPTURE(error.message());
    CHECK(error.error_class() == error_class);
    CHECK(error.message().find(text) != std::string::npos);
    CHECK_FALSE(std::ifstream(folder.file("f.h5")).good());
  };
  for (const auto& [out, text] : {std::pair("data/2001.h5", "which is what is read"),
                                  {"c.h5", "which is what is read"},
                                  {"data/2003.h5", "which would be one of the data's files"},
                                  {"data/2003.zarr", "which would be one of the data's files"}}) {
    train::ForecastOptions onto_input = good;
    onto_input.use.out = folder.file(out);
    onto_input.use.overwrite = true;
    refused(config, onto_input, ErrorClass::kUsage, text);
    train::ModelUse figures = onto_input.use;
    CHECK(agreed_error(world, [&] { train::evaluate(config, figures, checkpoint, world); }).message().find(text) !=
          std::string::npos);
  }
  CHECK(data::read_whole_dataset(folder.file("data/2001.h5"), "fields").size(0) == kWeatherTimes);
  train::ForecastOptions late = good;
  late.start = 2 * kWeatherTimes;
  refused(config, late, ErrorClass::kUsage, "--start is 18; allowed: 0 to 17");
  train::ForecastOptions store = good;
  store.use.out = folder.file("f.zarr");
  refused(config, store, ErrorClass::kUsage, "the data have one dataset 'fields'");
  train::ForecastOptions long_one = good;
  for (const int64_t steps : {int64_t{1} << 40, int64_t{1} << 48}) {
    long_one.steps = steps;
    refused(config, long_one, ErrorClass::kCannotCreate, "has room for");
  }

  if (world.rank() == 0) {
    write_hdf5_file(other.file("2001.h5"), {{"fields", weather_fields(1).narrow(1, 0, 2).contiguous()}});
    data::replace_npy({{other.file("global_means.npy"), weather_means().narrow(1, 0, 2).to(at::kFloat).contiguous()}});
    data::replace_npy({{other.file("global_stds.npy"), weather_stds().narrow(1, 0, 2).to(at::kFloat).contiguous()}});
    std::ofstream(folder.file("f.json")) << "mine";
  }
  world.barrier();
  const RunConfig fewer = weather_config(other.path(), {1, world.size(), 1}, train::Precision::kFp32);
  refused(fewer, good, ErrorClass::kUsage,
          "have states of 2 channels of 12 x 20, the model takes 3 channels of 12 x 20");
  const Error evaluated = agreed_error(world, [&] { train::evaluate(fewer, {}, checkpoint, world); });
  CHECK(evaluated.error_class() == ErrorClass::kUsage);
  CHECK(evaluated.message().find("2 channels of 12 x 20, the model takes 3 channels of 12 x 20") != std::string::npos);
  refused(config, good, ErrorClass::kCannotCreate, "f.json' is there already");
}

TEST_CASE("forecast: a model that cannot be fed its output, replicas, and a strange name are refused") {
  RunConfig config;
  config.model = small_forecaster();
  config.parallel.dp = 1;
  train::ForecastOptions options = forecast_options("c", "d", "f.h5");
  CHECK_NOTHROW(train::check_forecast(config, config.data.roles, options));
  for (const char* const name : {"f.nc", "f.zarr"}) {
    options.use.out = name;
    CHECK_NOTHROW(train::check_forecast(config, config.data.roles, options));
  }
  options.use.out = "f.zar";
  CHECK(thrown_error([&] { train::check_forecast(config, config.data.roles, options); })
            .message()
            .find("ends with .nc, .h5 or .zarr") != std::string::npos);
  options.use.out = "f.h5";
  config.parallel.dp = 2;
  CHECK(thrown_error([&] { train::check_forecast(config, config.data.roles, options); }).message().find("--dp is 2") !=
        std::string::npos);
  config.parallel.dp = 1;
  config.model.out_channels = 2;
  CHECK(thrown_error([&] { train::check_forecast(config, config.data.roles, options); })
            .message()
            .find("takes 3 channels and gives 2") != std::string::npos);
  config.model = small_classifier(model::Pooling::kMean);
  CHECK(thrown_error([&] { train::check_forecast(config, config.data.roles, options); }).message().find("classifies") !=
        std::string::npos);
}

TEST_CASE(
    "forecast store: names of channels that are no names of arrays, or another's, are refused before anything is "
    "made") {
  const comm::MpiGroup self = comm::MpiGroup::alone();
  const ScratchFolder folder(self);
  const std::string path = folder.file("f.zarr");
  const auto store = [&](const std::vector<std::string>& names) {
    std::vector<data::ZarrArray> arrays;
    for (const std::string& name : names) {
      arrays.push_back(data::zarr_array_to_write(name, {1, 2, 2}, {1, 2, 2}, {"time", "y", "x"}));
    }
    train::ForecastStore(self, path, std::move(arrays), {});
  };
  CHECK_NOTHROW(store({"t2m", "t2m_truth", "z500"}));
  for (const char* const name : {"", ".", "..", "../victim.zarr", "a/b", "zarr.json", "__name"}) {
    CHECK_MESSAGE((thrown_error([&] { store({"t2m", name}); }).error_class() == ErrorClass::kBadData), name);
  }
  CHECK(contains(thrown_error([&] {
                   store({"t2m", "t2m_truth", "t2m_truth"});
                 }).message(),
                 "a store cannot have two arrays 't2m_truth'"));
  CHECK(std::filesystem::is_empty(folder.path()));
}
