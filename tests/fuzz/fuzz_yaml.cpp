// Mutated configurations for the reader of YAML and of options.
#include "src/base/error.h"
#include "src/config/config_text.h"
#include "src/config/load_run_config.h"
#include "tests/support/fuzz.h"

namespace {

using namespace vit_hybrid;

const std::vector<std::string> kSeeds = {
    "base: &base\n  embed_dim: 384\n  depth: 6\n  lr: 5e-4\n  img_size: [360, 720]\nshort:\n  <<: *base\n"
    "  limit_nsamples: 512\n",
    "# run\nseed: 1\nname: \"caf\\u00e9 'x'\"\ntrain_data_path: /data/train\nnum_iters: 128 # steps\ntp: 2\n",
    "a: &a {seed: 1}\nb: &b {lr: 0.1}\nc:\n  <<: [*a, *b]\n  dropout: 0.1\n  pooling: mean\n  task: classify\n",
};

// Loads one section as `train` does, on any number of ranks.
void load(const std::string& content, const std::string& section) {
  auto loaded =
      train::load_run_config({"--config", "run.yaml" + section}, {}, [&](const std::string&) { return content; });
  train::resolve(loaded.config, 4);
  train::all_problems(loaded, 4);
  train::config_text(loaded.config);
}

}  // namespace

int main(int argc, char** argv) {
  return testing::fuzz(argc, argv, kSeeds, [](const std::string& path) {
    const std::string content = train::read_local_file(path);
    int num_loaded = 0;
    Error last(ErrorClass::kInternal, "nothing was tried");
    for (const char* const section : {"", ":short", ":c"}) {
      try {
        load(content, section);
        ++num_loaded;
      } catch (const Error& error) {
        last = error;
        if (error.error_class() == ErrorClass::kInternal) throw;
      }
    }
    if (num_loaded == 0) throw last;
  });
}
