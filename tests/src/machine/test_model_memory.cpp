// What a model takes of memory at least, and what the system says there is.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "model/vit_parameters.h"
#include "src/config/load_run_config.h"
#include "src/machine/model_memory.h"
#include "tests/support/contains.h"

namespace vit_hybrid::train {

namespace {

using testing::contains;

RunConfig config_of(const std::vector<std::string>& words, int world_size = 1) {
  LoadedConfig loaded = load_run_config(words, {}, read_local_file);
  resolve(loaded.config, world_size);
  return loaded.config;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("model memory: parameters by closed form, of any size") {
  const RunConfig config = config_of({"--depth=10000"});
  const model::VitOptions& model = config.model;
  // docs/workload.md, "Parameters and FLOP": D C p^2 + D + N D + L (12 D^2 + 13 D) + 2 D + D C p^2.
  const double dim = static_cast<double>(model.embed_dim);
  const double patch = static_cast<double>(model.in_channels * model.patch_height * model.patch_width);
  const double expected = 2.0 * dim * patch + dim + static_cast<double>(model.num_tokens()) * dim +
                          10000.0 * (12.0 * dim * dim + 13.0 * dim) + 2.0 * dim;
  CHECK(static_cast<double>(model::num_parameters(model)) == expected);
  CHECK(model::num_slice_parameters(model, 0, 1) == expected);
  model::VitOptions huge = model;
  huge.depth = 1 << 24;
  huge.embed_dim = huge.mlp_hidden = 1 << 24;
  CHECK(model::num_parameters(huge) == std::numeric_limits<int64_t>::max());
}

TEST_CASE("model memory: bytes a parameter are those of the types, the optimizer and its shards") {
  const auto bytes_per_parameter = [](std::vector<std::string> words, int world_size = 1) {
    words.insert(words.end(),
                 {"--data=hdf5", "--image-size=64", "--depth=400", "--embed-dim=4096", "--micro-batch-size=1"});
    const RunConfig config = config_of(words, world_size);
    return least_bytes_per_rank(config, config.data, ModelPurpose::kTraining).of_model /
           model::num_slice_parameters(config.model, 0, 1);
  };
  CHECK(bytes_per_parameter({}) == doctest::Approx(16.0).epsilon(0.1));
  CHECK(bytes_per_parameter({"--dp=4"}, 4) == doctest::Approx(10.0).epsilon(0.1));
  CHECK(bytes_per_parameter({"--dp=4", "--zero=0"}, 4) == doctest::Approx(16.0).epsilon(0.1));
  CHECK(bytes_per_parameter({"--precision=bf16", "--dp=2"}, 2) == doctest::Approx(12.0).epsilon(0.1));
  CHECK(bytes_per_parameter({"--optimizer=sgd"}) == doctest::Approx(12.0).epsilon(0.1));
  CHECK(bytes_per_parameter({"--pp=2"}, 2) == doctest::Approx(8.0).epsilon(0.1));
  CHECK(bytes_per_parameter({"--tp=2"}, 2) == doctest::Approx(8.0).epsilon(0.1));
  const RunConfig use = config_of({"--depth=4000"});
  CHECK(least_bytes_per_rank(use, use.data, ModelPurpose::kUse).of_model ==
        4.0 * model::num_slice_parameters(use.model, 0, 1));
}

TEST_CASE("model memory: what cannot fit is said with both figures, and what may fit is not") {
  const RunConfig config = config_of({});
  CHECK(memory_problem(config.model, config.parallel, 1e9, 4, 4'000'000'000, "a node").empty());
  CHECK(memory_problem(config.model, config.parallel, 1e30, 4, 0, "a node").empty());
  const std::string problem =
      memory_problem(config.model, config.parallel, 1073741824.0, 4, int64_t{1} << 31, "a node");
  CHECK(contains(problem, "this run takes at least 1.00 GiB a rank ("));
  CHECK(contains(problem, "4 times on a node, which has 2.00 GiB"));
  const auto bytes_with = [](const char* words) {
    const RunConfig given = config_of({words});
    return least_bytes_per_rank(given, given.data, ModelPurpose::kTraining);
  };
  for (const char* words : {"--embed-dim=16777216", "--image-size=16777216", "--mlp-hidden=16777216",
                            "--global-batch-size=99999999", "--generated-samples=99999999999"}) {
    CAPTURE(words);
    const RankBytes bytes = bytes_with(words);
    CHECK_FALSE(
        memory_problem(config.model, config.parallel, bytes.of_model + bytes.of_data, 1, int64_t{1} << 34, "a node")
            .empty());
  }
  // Generated data lie on the host, and are no matter of a GPU's memory.
  const RankBytes few = bytes_with("--generated-samples=1000");
  const RankBytes many = bytes_with("--generated-samples=2000");
  const auto fields =
      static_cast<double>(config.model.in_channels * config.model.image_height * config.model.image_width);
  CHECK(many.of_model == few.of_model);
  CHECK(many.of_data - few.of_data == 1000.0 * 4.0 * fields);
  // Pairs of consecutive fields, of training and of validation.
  const double num_fields = few.of_data / (4.0 * fields);
  CHECK(num_fields == 1001.0 + static_cast<double>(config.data.generated_valid_samples) + 1.0);
}

TEST_CASE("model memory: the machine's, or less where a cgroup says so") {
  const std::string root = (std::filesystem::temp_directory_path() / "vit_hybrid_test_memory").string();
  std::filesystem::remove_all(root);
  CHECK(node_memory_bytes(root) == 0);
  write(root + "/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:        1 kB\n");
  CHECK(node_memory_bytes(root) == int64_t{16} << 30);
  write(root + "/proc/self/cgroup", "0::/jobs/17/step\n");
  write(root + "/sys/fs/cgroup/jobs/17/step/memory.max", "max\n");
  CHECK(node_memory_bytes(root) == int64_t{16} << 30);
  write(root + "/sys/fs/cgroup/jobs/17/memory.max", "8589934592\n");
  CHECK(node_memory_bytes(root) == int64_t{8} << 30);
  write(root + "/proc/self/cgroup", "5:cpu,memory:/a\n4:cpuset:/b\n");
  CHECK(node_memory_bytes(root) == int64_t{16} << 30);
  write(root + "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4294967296\n");
  CHECK(node_memory_bytes(root) == int64_t{4} << 30);
  std::filesystem::remove_all(root);
  CHECK(node_memory_bytes() > 0);
}

}  // namespace vit_hybrid::train
