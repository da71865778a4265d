// RunConfig: loading from all sources, what is derived, its text, and its checks.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/vit_parameters.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/config/config_text.h"
#include "src/config/load_run_config.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

namespace {

using vit_hybrid::testing::contains;

using namespace vit_hybrid;
using namespace vit_hybrid::train;

using Words = std::vector<std::string>;

const std::string kSource = (std::filesystem::path(__FILE__).parent_path() / "../../..").string();

// The keys that the reference workload's configuration has, with values as it writes them.
const char* const kReference = R"(
base: &base
  embed_dim: 256
  depth: 10
  dropout: 0.1
  patch_size: 8
  num_heads: 8
  model_backend: 'pytorch'
  img_size: [360, 720]
  dt: 1
  global_batch_size: 16
  num_iters: 30000
  amp_mode: none
  enable_fused: false
  enable_jit: false
  expdir: '/somewhere/logs'
  lr_schedule: 'cosine'
  lr: 5E-4
  warmup: 0
  optimizer: 'Adam'
  data_loader_config: 'pytorch'
  num_data_workers: 0
  n_in_channels: 20
  n_out_channels: 20
  train_data_path: '/data/train'
  valid_data_path: '/data/valid'
  inf_data_path: '/data/test'
  time_means_path: '/data/stats/time_means.npy'
  global_means_path: '/data/stats/global_means.npy'
  global_stds_path: '/data/stats/global_stds.npy'
  limit_nsamples: None
  limit_nsamples_val: None
  wireup_info: env
  wireup_store: tcp
short:
  <<: *base
  limit_nsamples: 512
  num_iters: 128
half:
  <<: *base
  amp_mode: fp16
)";

LoadedConfig load(const Words& words, const std::map<std::string, std::string>& files = {},
                  const Words& environment = {}) {
  return load_run_config(words, environment, [&](const std::string& path) {
    const auto found = files.find(path);
    return found != files.end() ? found->second : read_local_file(path);
  });
}

RunConfig resolved(const Words& words, int world_size = 1, const std::map<std::string, std::string>& files = {}) {
  LoadedConfig loaded = load(words, files);
  CHECK_MESSAGE(loaded.problems.empty(), join(loaded.problems, "\n"));
  resolve(loaded.config, world_size);
  return loaded.config;
}

// The text without origins, in which two equal configurations are equal.
std::string values_of(const RunConfig& config) {
  RunConfig bare = config;
  bare.origin.clear();
  return config_text(bare);
}

std::string all_problems_of(const Words& words, int world_size = 1,
                            const std::map<std::string, std::string>& files = {}) {
  LoadedConfig loaded = load(words, files);
  resolve(loaded.config, world_size);
  return join(all_problems(loaded, world_size), "\n");
}

TEST_CASE("run config: nothing given is the built-in default") {
  const RunConfig config = resolved({}, 16);
  CHECK(config.is_builtin_default);
  CHECK(config.data.kind == DataKind::kBuiltin);
  CHECK(config.name == "builtin");
  CHECK(config.parallel.dp == 16);
  CHECK(config.origin.at("embed-dim") == "built-in default");
  CHECK(problems(config, 16).empty());
  // The headline command.
  CHECK(all_problems_of({"--dp", "4", "--tp", "2", "--pp", "2"}, 16).empty());
  // A preset changes the model and nothing else of it.
  const RunConfig other = resolved({"--preset", "weather-mp"});
  CHECK(other.is_builtin_default);
  CHECK(other.model.embed_dim == 1024);
  CHECK(other.model.image_height == 360);
  CHECK(other.schedule.steps == config.schedule.steps);
}

TEST_CASE("run config: data or a configuration switch the built-in default off") {
  const RunConfig data = resolved({"--train-data", "/tmp", "--stats", "/tmp"});
  CHECK_FALSE(data.is_builtin_default);
  CHECK(data.data.kind == DataKind::kHdf5);
  CHECK(data.model.embed_dim == 384);
  const RunConfig file = resolved({"--config", "c.yaml", "--data", "synthetic"}, 1, {{"c.yaml", "depth: 3\n"}});
  CHECK(file.model.depth == 3);
  CHECK(file.model.embed_dim == 384);
  CHECK(file.name == "c");
  CHECK(contains(all_problems_of({"--config", "c.yaml"}, 1, {{"c.yaml", "depth: 3\n"}}), "no training data is given"));
}

TEST_CASE("run config: precedence of files, environment and command line, and presets among them") {
  const std::map<std::string, std::string> files = {{"a.yaml", "lr: 1\ndepth: 3\nseed: 11\nembed_dim: 64\n"},
                                                    {"b.yaml", "s:\n  lr: 2\n  depth: 4\n"}};
  const auto loaded = load({"--config", "a.yaml", "--depth=5", "--config", "b.yaml:s"}, files, {"VIT_HYBRID_LR=3"});
  CHECK(loaded.config.schedule.lr == 3.0);
  CHECK(loaded.config.model.depth == 5);
  CHECK(loaded.config.seed == 11);
  CHECK(loaded.config.name == "s");
  CHECK(loaded.config.origin.at("lr") == "environment VIT_HYBRID_LR");
  CHECK(loaded.config.origin.at("depth") == "command line");
  CHECK(loaded.config.origin.at("seed") == "a.yaml:3");
  CHECK(loaded.config.origin.count("beta1") == 0);
  const auto preset = load({"--config", "a.yaml", "--preset", "weather-mp", "--depth", "2"}, files);
  CHECK(preset.config.model.embed_dim == 1024);
  CHECK(preset.config.model.depth == 2);
  CHECK(preset.config.origin.at("embed-dim") == "preset weather-mp");
}

TEST_CASE("run config: values that follow others") {
  const RunConfig config = resolved({"--embed-dim", "64", "--in-channels=5", "--dropout", "0.25", "--epochs", "3"});
  CHECK(config.model.mlp_hidden == 256);
  CHECK(config.origin.at("mlp-hidden") == "4 x embed-dim");
  CHECK(config.model.out_channels == 5);
  CHECK(config.model.attention_dropout == 0.25);
  CHECK(config.schedule.steps == 0);
  CHECK(config.schedule.epochs == 3);
  const RunConfig own = resolved({"--preset=vit-g14", "--mlp-hidden=100", "--attention-dropout=0", "--dropout=0.5"});
  CHECK(own.model.mlp_hidden == 100);
  CHECK(own.model.attention_dropout == 0.0);
  CHECK(resolved({"--preset=vit-g14"}).model.mlp_hidden == 6144);
  CHECK((own.model.gelu == kernels::GeluKind::kErf));
  const RunConfig tanh = resolved({"--preset=vit-g14", "--gelu=tanh"});
  CHECK((tanh.model.gelu == kernels::GeluKind::kTanh));
  CHECK(contains(config_text(tanh), "\ngelu: tanh "));
}

TEST_CASE("run config: micro-batches, local batch, validation batch, learning rate") {
  const RunConfig pipeline = resolved({"--dp=2", "--pp=2", "--global-batch-size=64"}, 4);
  CHECK(pipeline.parallel.micro_batch_size == 4);
  CHECK(pipeline.num_micro_batches() == 8);
  CHECK(pipeline.data.valid_batch_size == 64);
  const RunConfig uneven = resolved({"--dp=4", "--global-batch-size=17"}, 4);
  CHECK(uneven.replica_batch_size() == 5);
  CHECK(uneven.parallel.micro_batch_size == 5);
  const RunConfig local = resolved({"--local-batch-size=3"}, 4);
  CHECK(local.global_batch_size == 12);
  // The later of the two ways to say it counts.
  const std::map<std::string, std::string> files = {{"c.yaml", "local_batch_size: 3\ndata: synthetic\n"}};
  CHECK(resolved({"--config=c.yaml", "--global-batch-size=5"}, 4, files).global_batch_size == 5);
  const RunConfig scaled = resolved({"--lr=1e-3", "--lr-scaling=sqrt", "--lr-batch-size=16", "--global-batch-size=64"});
  CHECK(scaled.lr_schedule(9).base == doctest::Approx(2e-3).epsilon(1e-15));
  CHECK(scaled.lr_schedule(9).total == 9);
  const RunConfig linear =
      resolved({"--lr=1e-3", "--lr-scaling=linear", "--lr-batch-size=16", "--global-batch-size=8"});
  CHECK(linear.lr_schedule(9).base == doctest::Approx(5e-4).epsilon(1e-15));
  CHECK(resolved({"--lr=1e-3"}).lr_schedule(1).base == 1e-3);
  const RunConfig least = resolved({"--lr=1e-3", "--min-lr=1e-4", "--lr-scaling=sqrt", "--global-batch-size=64",
                                    "--lr-schedule=wsd", "--decay-share=0.5", "--warmup=3"});
  CHECK(least.lr_schedule(1).least == doctest::Approx(2e-4).epsilon(1e-15));
  CHECK(least.lr_schedule(1).decay_share == 0.5);
  CHECK(least.lr_schedule(1).warmup == 3);
  // Both ways to give the batch may be there where they agree.
  CHECK(all_problems_of({"--local-batch-size=3", "--global-batch-size=12", "--dp=4"}, 4).empty());
  CHECK(all_problems_of({"--local-batch-size=3", "--global-batch-size=12"}, 0).empty());
  CHECK(contains(all_problems_of({"--local-batch-size=3", "--global-batch-size=16"}, 0),
                 "--global-batch-size 16 is no multiple of --local-batch-size 3; keep one of them"));
  CHECK(contains(all_problems_of({"--local-batch-size=3", "--global-batch-size=16", "--dp=4"}, 4),
                 "--local-batch-size 3 x --dp 4 is 12, and --global-batch-size is 16; keep one of them"));
  const std::map<std::string, std::string> global = {{"c.yaml", "global_batch_size: 16\ndata: synthetic\n"}};
  CHECK(resolved({"--config=c.yaml", "--local-batch-size=5"}, 4, global).global_batch_size == 20);
  // The run's configuration has the batch that decides what is learned, for any number of ranks.
  const std::string text = config_text(local);
  CHECK(contains(text, "\nglobal_batch_size: 12 "));
  CHECK(contains(text, "\n# local_batch_size: 3 "));
  CHECK(resolved({"--config=r.yaml", "--dp=2"}, 2, {{"r.yaml", text}}).global_batch_size == 12);
  CHECK(contains(config_text(resolved({"--local-batch-size=3"}, 0)), "\nlocal_batch_size: 3 "));
}

TEST_CASE("run config: the reference workload's YAML") {
  const std::map<std::string, std::string> files = {{"ViT.yaml", kReference}};
  const RunConfig config = resolved({"--config", "ViT.yaml:short"}, 1, files);
  CHECK(config.model.embed_dim == 256);
  CHECK(config.model.mlp_hidden == 1024);
  CHECK(config.model.dropout == 0.1);
  CHECK(config.model.attention_dropout == 0.1);
  CHECK(config.model.image_height == 360);
  CHECK(config.model.image_width == 720);
  CHECK(config.schedule.steps == 128);
  CHECK(config.schedule.lr == 5e-4);
  CHECK(config.schedule.kind == LrSchedule::Kind::kCosine);
  CHECK(config.optimizer.kind == OptimizerKind::kAdam);
  CHECK(config.precision.kind == Precision::kFp32);
  CHECK(config.data.limit_nsamples == 512);
  CHECK(config.data.limit_nsamples_val == 0);
  CHECK(config.data.io_threads == 0);
  CHECK(config.data.train_data == "/data/train");
  CHECK(config.data.global_means == "/data/stats/global_means.npy");
  CHECK(config.data.global_stds == "/data/stats/global_stds.npy");
  CHECK(config.data.time_means == "/data/stats/time_means.npy");
  CHECK(config.data.kind == DataKind::kHdf5);
  CHECK(config.runs_root == "/somewhere/logs");
  CHECK(problems(config, 1).empty());
  const std::vector<std::string> unused = {"model_backend", "enable_fused", "enable_jit",  "data_loader_config",
                                           "inf_data_path", "wireup_info",  "wireup_store"};
  CHECK(config.unused_keys == unused);
  // --stats takes the place of all three files.
  const RunConfig other = resolved({"--config", "ViT.yaml:short", "--stats", "/x"}, 1, files);
  CHECK(other.data.global_means == "/x/global_means.npy");
  CHECK(other.data.global_stds == "/x/global_stds.npy");
  CHECK(other.data.time_means.empty());
  CHECK(problems(other, 1).empty());
  const RunConfig half = resolved({"--config", "ViT.yaml:half"}, 1, files);
  CHECK((half.precision.kind == Precision::kFp16));
  CHECK(half.precision.loss_scale == 0.0);
  CHECK(all_problems_of({"--config", "ViT.yaml:half", "--precision=fp32"}, 1, files).empty());
}

TEST_CASE("run config: the steps of a trace") {
  const auto steps = [](const std::string& text) {
    const options::StepRange trace = resolved({"--trace=" + text}).trace;
    return std::pair(trace.first, trace.last);
  };
  CHECK(steps("steps=10-12") == std::pair<int64_t, int64_t>(10, 12));
  CHECK(steps("steps=7") == std::pair<int64_t, int64_t>(7, 7));
  CHECK(steps("none") == std::pair<int64_t, int64_t>(0, 0));
  CHECK(resolved({"--trace=steps=7"}).trace.text() == "7");
  CHECK(resolved({"--trace=steps=10-12"}).trace.text() == "10-12");
  CHECK(!resolved({}).trace.any());
  for (const char* text : {"steps=10-5", "steps=0-3", "steps=", "steps=3-", "steps=-3", "3-4", "steps=1-2-3",
                           "steps=1 - 2", "steps=1-99999999999999999999", "steps=a-b", "STEPS", "steps=none"}) {
    const std::string problem = all_problems_of({str("--trace=", text)});
    CHECK_MESSAGE(contains(problem, str("'", text, "'; allowed: none, or a range steps=A-B, with 1 <= A <= B")),
                  problem);
  }
}

TEST_CASE("run config: histograms are off, or every so many iterations") {
  CHECK(resolved({}).histogram_every == 0);
  CHECK(resolved({"--histogram-every=20"}).histogram_every == 20);
  CHECK(resolved({"--histogram-every=none"}).histogram_every == 0);
  CHECK(contains(all_problems_of({"--histogram-every=0"}), "'0'"));
}

TEST_CASE("run config: the steps of a profile") {
  const options::StepRange steps = resolved({"--profile-steps=10-12"}).profile;
  CHECK(steps.first == 10);
  CHECK(steps.last == 12);
  CHECK(steps.text() == "10-12");
  CHECK(resolved({"--profile-steps=7"}).profile.text() == "7");
  CHECK(!resolved({"--profile-steps=none"}).profile.any());
  for (const char* text : {"steps=3-4", "5-3", "0-3", "3-", "-3", "1-2-3", "x"}) {
    const std::string problem = all_problems_of({str("--profile-steps=", text)});
    CHECK_MESSAGE(contains(problem, str("'", text, "'; allowed: none, or a range A-B, with 1 <= A <= B")), problem);
  }
}

TEST_CASE("run config: its text is read back as the same configuration") {
  const Words all = {"--preset=vit-s16",
                     "--dp=2",
                     "--tp=2",
                     "--data=synthetic",
                     "--lr=0.30000000000000004",
                     "--drop-last",
                     "--clip-norm=1",
                     "--timeout=5",
                     "--trace=steps=2-3",
                     "--histogram-every=20",
                     "--profile-steps=3-4",
                     "--epochs=3",
                     "--train-data=/a b/\"c\"\\#d",
                     "--name=1e5",
                     "--warmup=7",
                     "--seed=9223372036854775807",
                     "--limit-nsamples=100",
                     "--expdir= x: y"};
  for (const Words& words : {Words{}, all}) {
    const RunConfig config = resolved(words, 4);
    const RunConfig again = resolved({"--config", "config.yaml"}, 4, {{"config.yaml", config_text(config)}});
    CHECK(values_of(again) == values_of(config));
    CHECK(again.data.train_data == config.data.train_data);
    CHECK(again.runs_root == config.runs_root);
    CHECK(again.schedule.lr == config.schedule.lr);
  }
}

TEST_CASE("run config: our configurations are the workload's") {
  struct Expected {
    const char* section;
    int64_t parameters, batch, steps, limit;
    double lr;
  };
  for (const Expected& e :
       {Expected{"short", 13186176, 16, 128, 512, 5e-4}, Expected{"base", 13186176, 16, 30000, 0, 5e-4},
        Expected{"d12", 23832960, 16, 30000, 0, 5e-4}, Expected{"mp", 157926400, 64, 30000, 0, 1e-3},
        Expected{"mp-patch4", 168401920, 16, 30000, 0, 1e-3}}) {
    CAPTURE(e.section);
    const RunConfig config = resolved({"--config", kSource + "/configs/weather.yaml:" + e.section, "--data=synthetic"});
    CHECK(model::num_parameters(config.model) == e.parameters);
    CHECK(config.global_batch_size == e.batch);
    CHECK(config.schedule.steps == e.steps);
    CHECK(config.schedule.lr == e.lr);
    CHECK(config.lr_schedule(e.steps).base == e.lr);
    CHECK(config.lr_schedule(e.steps).at(e.steps / 2) == doctest::Approx(e.lr / 2.0));
    CHECK(config.data.limit_nsamples == e.limit);
    CHECK(config.schedule.kind == LrSchedule::Kind::kCosineReference);
    CHECK(config.name == e.section);
    CHECK(problems(config, 1).empty());
  }
  for (const char* section : {"ti16", "s16", "b16", "l16", "h14", "g14", "gg14"}) {
    CAPTURE(section);
    const RunConfig config = resolved({"--config", kSource + "/configs/imagenet.yaml:" + section, "--data=synthetic"});
    CHECK_FALSE(config.is_forecast());
    CHECK(config.schedule.epochs == 300);
    CHECK(problems(config, 1).empty());
  }
  const std::pair<const char*, OptimizerKind> optimizers[] = {{"s16-lamb", OptimizerKind::kLamb},
                                                              {"b16-lamb", OptimizerKind::kLamb},
                                                              {"b16-finetune", OptimizerKind::kSgd},
                                                              {"shapes-sgd", OptimizerKind::kSgd}};
  for (const auto& [name, kind] : optimizers) {
    const char* const section = name;  // what a lambda may capture
    CAPTURE(section);
    const RunConfig config =
        resolved({"--config", kSource + "/configs/imagenet.yaml:" + section, "--data=synthetic", "--dp=32"}, 32);
    CHECK(config.optimizer.kind == kind);
    CHECK(join(problems(config, 32), "\n").empty());
  }
  const RunConfig quick = resolved({"--config", kSource + "/configs/weather_quickstart.yaml", "--train-data=/t",
                                    "--stats=/s", "--dp=4", "--tp=2", "--pp=2"},
                                   16);
  CHECK(problems(quick, 16).empty());
}

TEST_CASE("run config: Megatron's names mean what they do there") {
  const RunConfig config = resolved({"--num-layers=3",
                                     "--hidden-size=96",
                                     "--ffn-hidden-size=200",
                                     "--num-attention-heads=6",
                                     "--train-iters=40",
                                     "--clip-grad=1.5",
                                     "--lr-warmup-iters=4",
                                     "--min-lr=1e-5",
                                     "--adam-beta1=0.8",
                                     "--adam-beta2=0.97",
                                     "--adam-eps=1e-7",
                                     "--save=/s",
                                     "--save-interval=10",
                                     "--load=/l",
                                     "--bf16",
                                     "--tensor-model-parallel-size=2",
                                     "--pipeline-model-parallel-size=2",
                                     "--micro-batch-size=2",
                                     "--global-batch-size=8",
                                     "--lr-decay-style=WSD",
                                     "--use-distributed-optimizer",
                                     "--recompute-granularity=selective"},
                                    4);
  CHECK(config.model.depth == 3);
  CHECK(config.model.embed_dim == 96);
  CHECK(config.model.mlp_hidden == 200);
  CHECK(config.model.num_heads == 6);
  CHECK(config.schedule.steps == 40);
  CHECK(config.optimizer.clip_norm == 1.5);
  CHECK(config.schedule.warmup == 4);
  CHECK(config.schedule.min_lr == 1e-5);
  CHECK(config.optimizer.beta1 == 0.8);
  CHECK(config.optimizer.beta2 == 0.97);
  CHECK(config.optimizer.eps == 1e-7);
  CHECK(config.checkpoint.dir == "/s");
  CHECK(config.checkpoint.every == 10);
  CHECK(config.checkpoint.load == "/l");
  CHECK((config.precision.kind == Precision::kBf16));
  CHECK(config.parallel.tp == 2);
  CHECK(config.parallel.pp == 2);
  CHECK(config.schedule.kind == LrSchedule::Kind::kWsd);
  CHECK((config.recompute == model::Recompute::kSelective));
  CHECK(problems(config, 4).empty());
  CHECK(resolved({"--clip-grad=0"}).optimizer.clip_norm == 0.0);
  // In files and the environment too; a flag that is not set says nothing.
  const std::map<std::string, std::string> files = {
      {"m.yaml", "num_layers: 2\nfp16: true\nbf16: false\ndata: synthetic\n"}};
  const auto loaded = load({"--config=m.yaml"}, files, {"VIT_HYBRID_HIDDEN_SIZE=64", "VIT_HYBRID_BF16=0"});
  CHECK(loaded.problems.empty());
  CHECK(loaded.config.model.depth == 2);
  CHECK(loaded.config.model.embed_dim == 64);
  CHECK(loaded.config.model.mlp_hidden == 256);
  CHECK((loaded.config.precision.kind == Precision::kFp16));
  CHECK((load({"--config=m.yaml", "--no-fp16"}, files).config.precision.kind == Precision::kFp32));
  CHECK(load({"--no-use-distributed-optimizer"}).config.parallel.zero == 0);
  CHECK(contains(all_problems_of({"--config=m.yaml"}, 1, {{"m.yaml", "bf16: true\nprecision: fp32\n"}}),
                 "m.yaml:2: 'precision' is given twice, as 'bf16' and 'fp32'; keep one"));
}

TEST_CASE("run config: makani's names of inputs are the options of here, and recorded as these") {
  const std::map<std::string, std::string> files = {
      {"m.yaml", "data: hdf5\ntrain_data: /x\nstats: /s\ndt: 4\nn_history: 2\nadd_zenith: true\n"},
      {"both.yaml", "history: 2\nn_history: 2\n"},
      {"zenith.yaml", "forcings: [sst, zenith]\nadd_zenith: true\n"}};
  const LoadedConfig loaded = load({"--config=m.yaml"}, files);
  CHECK(loaded.problems.empty());
  CHECK(loaded.config.data.lead.rows == 4);
  CHECK(loaded.config.data.roles.history == 3);
  CHECK(loaded.config.data.roles.forcings == "cos_zenith");
  CHECK(loaded.given.contains("history"));
  CHECK(loaded.given.contains("forcings"));
  const std::string text = config_text(loaded.config);
  for (const char* line : {"\nhistory: 3 ", "\nforcings: cos_zenith ", "# m.yaml:5\n", "# m.yaml:6\n"}) {
    CHECK_MESSAGE(contains(text, line), line);
  }
  CHECK_FALSE(contains(text, "n_history"));
  CHECK_FALSE(contains(text, "add_zenith"));
  const data::FieldRoles given = load({"--n-history=0", "--forcings=sst", "--add-zenith"}).config.data.roles;
  CHECK(given.history == 1);
  CHECK(given.forcings == "sst,cos_zenith");
  CHECK(load({"--config=zenith.yaml"}, files).config.data.roles.forcings == "sst,zenith");
  CHECK(load({}, {}, {"VIT_HYBRID_N_HISTORY=1"}).config.data.roles.history == 2);
  CHECK(contains(all_problems_of({"--config=both.yaml"}, 1, files),
                 "both.yaml:2: 'n_history' (history) is given twice, as '2' and '2' (history 3); keep one"));
  CHECK(contains(all_problems_of({"--n-history=64"}, 1), "'n-history' is '64'; allowed: integer, 0 to 63"));
  CHECK(contains(join(all_remarks(load({"--add-zenith", "--n-history=1"})), "\n"),
                 "--history has no effect here: it is for HDF5 files of --task forecast\n--forcings has no effect"));
}

TEST_CASE("run config: what has no effect beside the rest is said, and only where it was given for this run") {
  const auto remarks = [](const Words& words, const std::map<std::string, std::string>& files = {},
                          const std::vector<std::string>& environment = {}) {
    LoadedConfig loaded = load(words, files, environment);
    resolve(loaded.config, 1);
    CHECK_MESSAGE(all_problems(loaded, 1).empty(), join(all_problems(loaded, 1), "\n"));
    return join(all_remarks(loaded), "\n");
  };
  CHECK(remarks({}) == "");
  CHECK(remarks({"--lr-schedule=constant", "--min-lr=1e-5"}) ==
        "--min-lr has no effect here: it is for --lr-schedule cosine, linear and wsd");
  CHECK(remarks({"--min-lr=1e-5"}) == "");
  CHECK(remarks({"--tp-overlap", "--recompute=full"}) ==
        "--tp-overlap has no effect here: --tp is 1, and there are no sums to hide");
  CHECK(remarks({"--zero=0", "--config=z.yaml"}, {{"z.yaml", "data: synthetic\nzero_shard_size: 2\n"}}) ==
        "--zero has no effect here: --dp is 1, and there is nobody to share with");
  CHECK(remarks({"--zero=0"}) == "--zero has no effect here: --dp is 1, and there is nobody to share with");
  CHECK(remarks({"--num-classes=7", "--decay-share=0.5"}) ==
        "--num-classes has no effect here: it is for --task classify\n"
        "--decay-share has no effect here: it is for --lr-schedule wsd");
  CHECK(remarks({"--retune"}) == "");
  CHECK(remarks({"--retune", "--deterministic", "--device=cpu", "--ranks-per-gpu=2"}) ==
        "--retune has no effect here: with --deterministic a CPU takes its usual kernels, without measuring\n"
        "--ranks-per-gpu has no effect here: it is for GPUs, and the run uses none");
  CHECK(remarks({"--ranks-per-gpu=2"}).empty() == vit_hybrid::is_built_with_cuda());
  CHECK(remarks({"--stats=/x"}) == "--stats has no effect here: it is for HDF5 files of --task forecast");
  CHECK(remarks({"--train-data=/x", "--stats=/x", "--generated-samples=5"}) ==
        "--generated-samples has no effect here: HDF5 files are read and no data generated");
  CHECK(remarks({"--config=c.yaml"}, {{"c.yaml", "data: builtin\nmin_lr: 0.1\nlr: 1\nlr_schedule: constant\n"}}) == "");
  CHECK(remarks({"--data=builtin", "--stage-data=none"}, {},
                {"VIT_HYBRID_TRAIN_DATA=/x", "VIT_HYBRID_VALID_DATA=/y", "VIT_HYBRID_STAGE_DIR=/z"}) ==
        "--train-data has no effect here: no files are read\n"
        "--valid-data has no effect here: no files are read\n"
        "--stage-dir has no effect here: --stage-data is none");
  const std::string file = "train_data: /x\nvalid_data: /y\nstage_data: node\nstage_dir: /z\n";
  CHECK(remarks({"--config=c.yaml"}, {{"c.yaml", file}}, {"VIT_HYBRID_DATA=builtin", "VIT_HYBRID_STAGE_DATA=none"}) ==
        "");
  CHECK(remarks({"--data=builtin", "--task=classify", "--valid-resize=64"}) ==
        "--valid-resize has no effect here: it is for HDF5 files of --task classify");
  CHECK(remarks({"--seed=1", "--seed=2"}) ==
        "command line: 'seed' is given twice, as '1' and '2'; the last one counts");
  CHECK(remarks({"--config=c.yaml", "--data=builtin"}, {{"c.yaml", "enable_jit: true\n"}}) ==
        "keys without a meaning here, unused: enable_jit");
}

TEST_CASE("run config: epochs that have more iterations than can be counted are refused") {
  CHECK(steps_of_epochs(3, 5) == 15);
  CHECK(steps_of_epochs(1 << 24, 1 << 24) == int64_t{1} << 48);
  for (const int64_t steps : {(int64_t{1} << 24) + 1, int64_t{1} << 40, int64_t{1} << 48}) {
    const Error error = testing::thrown_error([&] { steps_of_epochs(1 << 24, steps); });
    CHECK(error.error_class() == ErrorClass::kUsage);
    CHECK(contains(error.message(), str("--epochs is 16777216, and an epoch has ", steps, " iterations")));
  }
}

TEST_CASE("run config: its text is text, whatever was given") {
  const RunConfig config = resolved({"--name=a\x1b[31m\nb\xe2\x80\xae\"\\"});
  const std::string text = config_text(config);
  CHECK(contains(text, "name: \"a\\x1b[31m\\nb\\u202e\\\"\\\\\""));
  CHECK(resolved({"--config=c.yaml"}, 1, {{"c.yaml", text}}).name == config.name);
}

TEST_CASE("run config: it can be looked at before the number of ranks is known") {
  const RunConfig config = resolved({"--tp=2"}, 0);
  CHECK(problems(config, 0).empty());
  CHECK(contains(config_text(config), "\ndp: auto\n"));
  CHECK(contains(config_text(config), "\nmicro_batch_size: auto\n"));
}

TEST_CASE("run config: a missing configuration") {
  try {
    load({"--config", "/nowhere/x.yaml:short"});
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kMissingInput);
    CHECK(contains(error.what(), "/nowhere/x.yaml is not there"));
  }
}

}  // namespace
