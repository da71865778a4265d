// The checks of a RunConfig: each problem is said once, with what would be allowed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "src/config/load_run_config.h"
#include "tests/support/contains.h"

namespace {

using vit_hybrid::testing::contains;

using namespace vit_hybrid;
using namespace vit_hybrid::train;

using Words = std::vector<std::string>;

LoadedConfig load_resolved(const Words& words, int world_size) {
  LoadedConfig loaded = load_run_config(words, {}, read_local_file);
  resolve(loaded.config, world_size);
  return loaded;
}

RunConfig resolved_config(const Words& words, int world_size = 1) {
  return load_resolved(words, world_size).config;
}

std::string problems_of_words(const Words& words, int world_size = 1) {
  return join(all_problems(load_resolved(words, world_size), world_size), "\n");
}

TEST_CASE("run config: what does not go together is said with what would") {
  struct Case {
    Words words;
    int world_size;
    const char* message;
  };
  const std::vector<Case> cases = {
      {{"--dp=4", "--tp=2"},
       6,
       "--dp 4 x --tp 2 x --pp 1 is 8, but there are 6 ranks; give --dp 3 or --dp auto, or start 8 ranks"},
      {{"--dp=2", "--tp=4"}, 6, "near it is dp x tp x pp = "},
      {{"--tp=4"}, 6, "--tp 4 x --pp 1 is 4, but there are 6 ranks, no multiple of it; near it is dp x tp x pp = "},
      {{"--tp=2", "--tp-overlap", "--recompute=full"},
       2,
       "--tp-overlap hides no sums with --recompute full, which runs each block of a micro-batch as a whole; allowed: "
       "--recompute none or selective, or --no-tp-overlap"},
      {{"--zero-shard-size=4"},
       6,
       "--zero-shard-size is 4, which does not divide the 6 ranks of --dp; allowed: a number that divides them, or "
       "auto, which is 6"},
      {{"--zero-shard-size=8"}, 4, "--zero-shard-size is 8, more than the 4 ranks of --dp; allowed: a number that"},
      {{"--zero=0", "--zero-shard-size=2"},
       4,
       "--zero-shard-size 2 splits the optimizer state, and with --zero 0 each rank keeps all of it; give --zero 1, or "
       "--zero-shard-size auto"},
      {{"--tp=5"}, 5, "tensor degree (--tp) is 5, more than the 4 attention heads"},
      {{"--pp=7"}, 7, "pipeline degree (--pp) is 7, more than the 6 layer units"},
      {{"--num-heads=3"}, 1, "num_heads is 3, which does not divide embed_dim 128"},
      {{"--image-size=32x3"}, 1, "patch_width is 4, more than the 3 columns"},
      {{"--global-batch-size=3"}, 4, "--global-batch-size is 3, fewer samples than the 4 replicas (--dp)"},
      {{"--micro-batch-size=5"}, 4, "--micro-batch-size is 5; a replica has at most 4 samples"},
      {{"--steps=none"}, 1, "neither --steps nor --epochs is given"},
      {{"--steps=5", "--epochs=2"}, 1, "--steps 5 and --epochs 2 are both given"},
      {{"--loss-channel-weights=t2m"},
       1,
       "--loss-channel-weights: 't2m' is no weight of a channel; allowed: increments,"},
      {{"--loss-channel-weights=t2m=-1"}, 1, "--loss-channel-weights: the weight of 't2m' is '-1', which is no number"},
      {{"--loss-channel-weights=increments"},
       1,
       "takes time_diff_stds.npy of the data's statistics; give --stats FOLDER"},
      {{"--data=hdf5", "--stats=/x"}, 1, "--data hdf5 needs --train-data"},
      {{"--train-data=/x"}, 1, "give --stats FOLDER"},
      {{"--train-data=/x", "--global-means=/s/means.npy"}, 1, "and --global-stds FILE"},
      {{"--data=builtin", "--task=classify", "--image-size=32x64"},
       1,
       "--image-size is 32x64, and --data builtin paints square images of 3 colours in up to 30 classes; give one"},
      {{"--task=classify", "--in-channels=4"}, 1, "--in-channels is 4, and --data builtin paints square images"},
      {{"--task=classify", "--num-classes=31"}, 1, "--num-classes is 31, and --data builtin paints square images"},
      {{"--limit-nsamples=8", "--drop-last"}, 1, "leaves no whole batch of 16"},
      {{"--device=cpu", "--pin-memory=on"},
       1,
       "--pin-memory on page-locks batches for copies to a GPU, and --device cpu makes none; allowed: auto, off"},
      {{"--data=builtin", "--train-data=/x"},
       1,
       "--train-data '/x' is given, and --data builtin makes its data in memory and reads none; give --data hdf5, or "
       "no --train-data"},
      {{"--data=synthetic", "--valid-data=/y"}, 1, "--valid-data '/y' is given, and --data synthetic makes its data"},
      {{"--valid-data=/y"}, 1, "--valid-data '/y' is given, and --data builtin makes its data in memory"},
      {{"--train-data=/x", "--stats=/x", "--stage-dir=/tmp"},
       1,
       "--stage-dir '/tmp' is where --stage-data node puts its copies, and --stage-data is none; give --stage-data "
       "node, or no --stage-dir"},
      {{"--train-data=/x", "--stats=/x", "--stage-data=none", "--stage-dir=/tmp"}, 1, "--stage-dir '/tmp' is where"},
      {{"--stage-data=node"}, 1, "--stage-data node copies HDF5 files, and none are read"},
      {{"--train-data=/x", "--stats=/x", "--stage-data=node", "--io=collective"},
       1,
       "--io is auto or direct, not collective"},
      {{"--train-data=/x", "--stats=/x", "--mpiio-hints=cb_nodes=2"}, 1, "--mpiio-hints are for --io collective"},
      {{"--train-data=/x", "--stats=/x", "--io=collective", "--mpiio-hints=cb_nodes=2,striping"},
       1,
       "--mpiio-hints: 'striping' is no hint; hints are key=value"},
      {{"--nesterov"}, 1, "--nesterov is for sgd, and --optimizer is adam; give --no-nesterov"},
      {{"--optimizer=sgd", "--momentum=0", "--nesterov"}, 1, "--nesterov needs momentum, and --momentum is 0"},
      {{"--momentum=0.5"},
       1,
       "--momentum 0.5 is for sgd and lars, and --optimizer is adam; leave it at its default, 0.9"},
      {{"--optimizer=sgd", "--beta2=0.999"},
       1,
       "--beta2 0.999 is for adam, adamw and lamb, and --optimizer is sgd; leave it at its default, 0.95"},
      {{"--optimizer=lars", "--eps=1e-6"}, 1, "--eps 1e-06 is for adam, adamw and lamb, and --optimizer is lars"},
      {{"--optimizer=lamb", "--trust-coefficient=0.01"}, 1, "--trust-coefficient 0.01 is for lars, and --optimizer is"},
      {{"--optimizer=adagrad"}, 1, "'optimizer' is 'adagrad'; allowed: adam, adamw, sgd, lamb, lars"},
      {{"--valid-resize=64"}, 1, "--valid-resize 64 is for images of --task classify"},
      {{"--task=classify", "--data=synthetic", "--image-size=32", "--in-channels=3", "--valid-resize=31"},
       1,
       "--valid-resize is 31, less than the 32 pixels that are cut from it (--image-size); allowed: auto, or at least "
       "32"},
      {{"--test", "--run-dir=x", "--resume=auto"},
       1,
       "--test-steps 50 measures and saves nothing, and with --resume auto its records would be mixed"},
      {{"--test-steps=7", "--run-dir=x", "--resume=latest"}, 1, "--resume none, or --resume PATH and a --run-dir"},
      {{"--test-steps=0"}, 1, "command line: 'test-steps' is '0'; allowed: "},
      {{"--lr=nan"}, 1, "command line: 'lr' is 'nan'; allowed: number, more than 0"},
      {{"--precision=fp8"}, 1, "command line: 'precision' is 'fp8'; allowed: fp32, fp64, tf32, bf16, fp16"},
      {{"--precision=bf16", "--loss-scale=128"},
       1,
       "--loss-scale 128 is for --precision fp16, and --precision is bf16"},
      {{"--loss-scale=0"},
       1,
       "command line: 'loss-scale' is '0'; allowed: dynamic, or a number at least 1e-04, at most 1e+12"},
      {{"--precision=fp16", "--loss-scale=1e-30"}, 1, "command line: 'loss-scale' is '1e-30'; allowed: dynamic, or"},
      {{"--precision=fp16", "--loss-scale=1e30"}, 1, "command line: 'loss-scale' is '1e30'; allowed: dynamic, or"},
      {{"--grad-dtype=half"}, 1, "--grad-dtype half is for --precision bf16 and fp16, and --precision is fp32"},
      {{"--precision=fp64", "--reduce-dtype=half"}, 1, "--reduce-dtype half is for --precision bf16 and fp16"},
      {{"--preset=vit-b32"}, 1, "command line: 'preset' is 'vit-b32'; allowed: "},
      {{"--seed=-1"}, 1, "command line: 'seed' is '-1'; allowed: integer, at least 0"},
      {{"--lr=1e-3", "--min-lr=2e-3"}, 1, "--min-lr is 0.002, more than --lr 0.001; allowed: 0 to 0.001"},
      {{"--steps=20", "--warmup=21"}, 1, "--warmup is 21, longer than the run of 20 iterations; allowed: 0 to 20"},
      {{"--steps=20", "--warmup=18", "--lr-schedule=wsd"},
       1,
       "--warmup 18 and the decay over 4 iterations (--decay-share 0.2) are longer than the run of 20 iterations"},
      {{"--decay-share=1.5"}, 1, "command line: 'decay-share' is '1.5'; allowed: number, more than 0, at most 1"},
      {{"--load=/x", "--resume=/y"}, 1, "--load /x and --resume /y both say what to go on from; keep one of them"},
      {{"--global-batch-size=2000000", "--micro-batch-size=1"},
       1,
       "--micro-batch-size 1 makes 2000000 micro-batches of a replica's 2000000 samples; allowed: at most 1048576"},
      {{"--global-batch-size=99999999999999"},
       1,
       "'global-batch-size' is '99999999999999'; allowed: integer, at least"},
  };
  for (const Case& c : cases) {
    CAPTURE(join(c.words, " "));
    const std::string message = problems_of_words(c.words, c.world_size);
    CHECK_MESSAGE(contains(message, c.message), message);
    CHECK_MESSAGE(!contains(message, "\n"), message);
  }
}

TEST_CASE("run config: paths of a configuration stay where the command line takes other data") {
  const auto problems_with = [](const std::string& file, const Words& words) {
    const auto read = [&](const std::string&) { return file; };
    Words all = {"--config=c.yaml"};
    all.insert(all.end(), words.begin(), words.end());
    LoadedConfig loaded = load_run_config(all, {}, read);
    resolve(loaded.config, 1);
    return join(all_problems(loaded, 1), "\n");
  };
  const std::string paths = "train_data: /x\nvalid_data: /y\nstats: /x\nstage_data: node\nstage_dir: /tmp\n";
  CHECK(problems_with(paths, {}) == "");
  CHECK(problems_with(paths, {"--data=synthetic", "--stage-data=none"}) == "");
  CHECK(contains(problems_with(paths, {"--data=synthetic", "--stage-data=none", "--train-data=/z"}), "'/z'"));
  CHECK(contains(problems_with(paths + "data: builtin\n", {"--stage-data=none"}), "--train-data '/x' is given"));
  CHECK(contains(problems_with("stage_dir: /tmp\n", {}), "--stage-dir '/tmp' is where"));
}

TEST_CASE("run config: a test leaves no checkpoint, whatever the recipe says of them") {
  for (const Words& test : {Words{"--test"}, Words{"--test-steps=50"}, Words{"--test-nsteps", "50"}}) {
    Words words = {"--checkpoint-every=10", "--checkpoint-at-start", "--keep-checkpoints=3"};
    words.insert(words.end(), test.begin(), test.end());
    CHECK(problems_of_words(words) == "");
    const RunConfig config = resolved_config(words);
    CHECK(config.test_steps == 50);
    CHECK(config.checkpoint.keep == 0);
    CHECK(config.checkpoint.every == 0);
    CHECK_FALSE(config.checkpoint.at_start);
    CHECK(config.origin.at("checkpoint-every") == "test-steps");
  }
  CHECK(resolved_config({"--test", "--test-steps=20"}).test_steps == 20);
  CHECK(resolved_config({"--test-steps=20", "--test"}).test_steps == 20);
  CHECK(resolved_config({}).test_steps == 0);
  CHECK(resolved_config({"--checkpoint-every=10", "--no-test"}).checkpoint.every == 10);
  CHECK(problems_of_words({"--test", "--resume=some/where.h5"}) == "");
}

TEST_CASE("run config: several problems are one message, and none follows from another") {
  const std::string message =
      problems_of_words({"--dp=3", "--num-heads=x", "--global-batch-size=0", "--patch-size=33x65", "--lr=-1"}, 4);
  CHECK(std::count(message.begin(), message.end(), '\n') == 5);
  for (const char* part :
       {"'num-heads' is 'x'", "'global-batch-size' is '0'", "'lr' is '-1'", "--dp 3", "patch_height", "patch_width"}) {
    CHECK_MESSAGE(contains(message, part), part);
  }
}

TEST_CASE("run config: every layout that is proposed is right") {
  const RunConfig config = resolved_config({"--dp=5", "--tp=5", "--pp=3"}, 12);
  const std::string message = join(problems(config, 12), "\n");
  size_t at = message.find("dp x tp x pp = ") + std::string("dp x tp x pp = ").size();
  REQUIRE(at < message.size());
  CHECK(message.substr(at, 5) == "1x4x3");  // the nearest to tp 5 and pp 3
  for (int count = 0; count < 6; ++count, at = message.find(" or ", at) + 4) {
    int dp = 0, tp = 0, pp = 0;
    REQUIRE(std::sscanf(message.c_str() + at, "%dx%dx%d", &dp, &tp, &pp) == 3);
    CHECK(dp * tp * pp == 12);
    CHECK(problems_of_words({str("--dp=", dp), str("--tp=", tp), str("--pp=", pp)}, 12).empty());
  }
}

TEST_CASE("run config: paths") {
  const std::string folder = (std::filesystem::temp_directory_path() / "vit_hybrid_test_paths").string();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/train");
  const RunConfig config =
      resolved_config({"--train-data=" + folder + "/train", "--valid-data=" + folder + "/valid", "--stats=" + folder});
  const std::string message = join(path_problems(config), "\n");
  CHECK(contains(message, "--valid-data '" + folder + "/valid' does not exist"));
  CHECK(contains(message, "--global-means '" + folder + "/global_means.npy' does not exist"));
  CHECK(contains(message, "global_stds.npy' does not exist"));
  CHECK_FALSE(contains(message, "--train-data"));
  const RunConfig images = resolved_config({"--preset=vit-b16", "--train-data=" + folder});
  CHECK(contains(join(path_problems(images), "\n"), "is a folder; it must be a file"));
  CHECK(path_problems(resolved_config({})).empty());
  std::filesystem::remove_all(folder);
}

}  // namespace
