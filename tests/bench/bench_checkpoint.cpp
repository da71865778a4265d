// Checkpoints of a real training against plain writes and reads of the same bytes, and what they keep it from.
//
//   bench_checkpoint FOLDER ROUNDS [options of vit_hybrid train, for the model and the layout...]
//
// on any number of ranks. Each of ROUNDS rounds (and one before them that does not count) writes the same bytes into
// new files of FOLDER by plain pwrite of a small buffer with fsync, as `dd conv=fsync` does, by as many processes as
// save a checkpoint, and by one; saves a checkpoint; and reads both back (from the page cache, where there is one).
// Then the model is trained, and ROUNDS + 1 checkpoints are saved in the background, the first of which is told by
// itself. Medians over the rounds, of the slowest rank.
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "data/loading/sampler.h"
#include "data/reading/posix_file.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/config/load_run_config.h"
#include "src/machine/device.h"
#include "src/machine/placement.h"
#include "src/train/saving/checkpointer.h"
#include "src/train/saving/resume.h"
#include "src/train/trainer.h"

namespace {

using namespace vit_hybrid;

constexpr int kWarmUpSteps = 3;
constexpr int kPlainSteps = 8;  // measured before a save
constexpr int64_t kBlock = 1 << 20;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

train::RunConfig config_of(const std::vector<std::string>& words, int ranks) {
  auto loaded = train::load_run_config(words, {}, &train::read_local_file);
  train::resolve(loaded.config, ranks);
  const auto problems = train::all_problems(loaded, ranks);
  if (!problems.empty()) {
    throw Error(ErrorClass::kUsage, join(problems, "\n"));
  }
  loaded.config.checkpoint.async = true;  // so that there is memory for a copy
  loaded.config.checkpoint.keep = 1;
  return loaded.config;
}

// Seconds of the slowest rank, from a common start.
template <class Function>
double timed(const comm::MpiGroup& world, const Function& function) {
  world.barrier();
  const Timer timer;
  function();
  return 1e-9 * static_cast<double>(world.max(static_cast<int64_t>(1e9 * timer.seconds())));
}

class Training {
 public:
  Training(const comm::MpiGroup& world, std::string folder, train::RunConfig config)
      : world_(world),
        folder_(std::move(folder)),
        config_(std::move(config)),
        mesh_(mesh::ParallelDims(config_.parallel.dp, config_.parallel.tp, config_.parallel.pp), world,
              c10::Device(c10::kCPU)),
        engine_(train::engine_options(config_), mesh_),
        log_({}, 1 << 30),
        checkpoints_(config_, world, mesh_, engine_, log_, folder_ + "/checkpoints", {1000, ""}),
        bytes_(train::checkpoint_bytes(engine_, config_.model)) {
    checkpoints_.prepare("");
  }

  double gigabytes() const { return 1e-9 * static_cast<double>(bytes_); }

  // Seconds of one step, with the word at its border on whether all have written.
  double step() {
    return timed(world_, [&] {
      const train::StepPlan plan = make_plan();
      size_t next = 0;
      engine_.train_step(
          plan, [&] { return make_batch(plan.micro_batches[next++]); }, 1e-4);
      all_have_written_ = world_.min(checkpoints_.has_written() ? 1 : 0) == 1;
    });
  }

  // A checkpoint is saved in the background while steps go on.
  struct BackgroundFigures {
    double step = 0.0;    // median of those before
    double start = 0.0;   // seconds in which the state may not change
    double end = 0.0;     // at the border of the step that found it written
    double longer = 0.0;  // that the steps meanwhile took longer than those before, in all
    int steps = 0;        // meanwhile
  };
  BackgroundFigures save_in_background() {
    BackgroundFigures figures;
    std::vector<double> plain;
    for (int i = 0; i < kPlainSteps; ++i) {
      plain.push_back(step());
    }
    figures.step = median(plain);
    figures.start = timed(world_, [&] { checkpoints_.save({++position_, 0, 0}, std::nullopt); });
    all_have_written_ = false;
    while (!all_have_written_) {
      figures.longer += step() - figures.step;
      ++figures.steps;
    }
    figures.end = timed(world_, [&] { checkpoints_.complete(); });
    return figures;
  }

  std::string saved() const { return folder_ + "/saved.h5"; }
  double save() {
    std::filesystem::remove(saved());
    return timed(world_, [&] {
      train::save_checkpoint(world_, mesh_, engine_, config_.model, train::CheckpointInfo(), saved());
    });
  }
  double load() {
    return timed(world_, [&] {
      const train::CheckpointReader reader(world_, saved());
      train::restore(reader, engine_, mesh_, world_);
    });
  }

  std::string plain() const { return folder_ + "/plain"; }
  // The ranks below `writers` write a part each; with one of them it is what `dd bs=1M conv=fsync` does.
  double write_plain(int writers) {
    if (world_.rank() == 0) {
      std::filesystem::remove(plain());
    }
    return timed(world_, [&] {
      if (world_.rank() == 0) {
        data::PosixFile(plain(), data::PosixFile::Access::kCreate).close();
      }
      world_.barrier();
      if (world_.rank() < writers) {
        const data::PosixFile file(plain(), data::PosixFile::Access::kUpdate);
        over_blocks(Partition(bytes_, writers).part(world_.rank()),
                    [&](int64_t at, int64_t count) { file.write(at, block_.data(), count); });
        file.sync();
      }
    });
  }
  double read_plain() {
    return timed(world_, [&] {
      const data::PosixFile file(plain(), data::PosixFile::Access::kRead);
      over_blocks(Partition(bytes_, world_.size()).part(world_.rank()),
                  [&](int64_t at, int64_t count) { file.read(at, block_.data(), count); });
    });
  }
  void remove_files() {
    world_.barrier();
    if (world_.rank() == 0) {
      std::filesystem::remove(plain());
      std::filesystem::remove(saved());
      std::filesystem::remove_all(folder_ + "/checkpoints");
    }
  }

 private:
  template <class Transfer>
  static void over_blocks(Range part, const Transfer& transfer) {
    for (int64_t at = part.begin; at < part.end; at += kBlock) {
      transfer(at, std::min(kBlock, part.end - at));
    }
  }

  // The same samples in every step: what they hold makes no step longer.
  train::StepPlan make_plan() const {
    const int64_t batch = config_.global_batch_size;
    const Range own = Partition(batch, mesh_.dims().data()).part(mesh::on(mesh_.coordinate(), mesh::Axis::kData));
    train::StepPlan plan;
    for (int64_t at = own.begin; at < own.end; at += config_.parallel.micro_batch_size) {
      auto& samples = plan.micro_batches.emplace_back();
      for (int64_t i = at; i < std::min(at + config_.parallel.micro_batch_size, own.end); ++i) {
        samples.push_back(i);
      }
    }
    plan.global_batch = batch;
    plan.context.seed = config_.seed;
    plan.context.mode = Mode::kTraining;
    return plan;
  }

  data::Batch make_batch(const std::vector<int64_t>& samples) {
    const model::VitOptions& model = config_.model;
    const auto n = static_cast<int64_t>(samples.size());
    const std::vector<int64_t> shape = {n, model.in_channels, model.image_height, model.image_width};
    if (!batch_.inputs.defined() || batch_.inputs.size(0) != n) {
      batch_.inputs = at::randn(shape, at::kFloat);
      batch_.targets = config_.is_forecast() ? at::randn(shape, at::kFloat) : at::zeros({n}, at::kLong);
    }
    batch_.samples = samples;
    return batch_;
  }

  const comm::MpiGroup& world_;
  std::string folder_;
  train::RunConfig config_;
  mesh::DeviceMesh mesh_;
  train::Engine engine_;
  train::RunLog log_;
  train::Checkpointer checkpoints_;
  int64_t bytes_;
  int64_t position_ = 0;
  bool all_have_written_ = false;
  data::Batch batch_;
  std::vector<char> block_ = std::vector<char>(kBlock, 'x');
};

void print_bandwidths(const comm::MpiGroup& world, Training& training, int rounds) {
  std::vector<double> plain;
  std::vector<double> one;
  std::vector<double> save;
  std::vector<double> load;
  std::vector<double> read;
  for (int round = 0; round <= rounds; ++round) {
    const double seconds[] = {training.write_plain(world.size()), training.save(), training.write_plain(1),
                              training.load(), training.read_plain()};
    if (round > 0) {  // the first one fills caches and pools
      plain.push_back(seconds[0]);
      save.push_back(seconds[1]);
      one.push_back(seconds[2]);
      load.push_back(seconds[3]);
      read.push_back(seconds[4]);
    }
  }
  if (world.rank() != 0) {
    return;
  }
  const auto line = [&](const std::string& name, const std::vector<double>& seconds, const std::vector<double>& of) {
    std::printf("%-46s %8.3f %8.2f %8.0f%%\n", name.c_str(), median(seconds), training.gigabytes() / median(seconds),
                100.0 * median(of) / median(seconds));
  };
  std::printf("%.3f GB, %d processes, medians of %d rounds\n%-46s %8s %8s %9s\n", training.gigabytes(), world.size(),
              rounds, "", "s", "GB/s", "of plain");
  line(str("plain writes and fsync, ", world.size(), " processes"), plain, plain);
  line("plain writes and fsync, 1 process (dd)", one, plain);
  line("save", save, plain);
  line(str("plain reads, ", world.size(), " processes"), read, read);
  line("load, checksums verified", load, read);
}

void print_stalls(const comm::MpiGroup& world, Training& training, int rounds) {
  for (int i = 0; i < kWarmUpSteps; ++i) {
    training.step();
  }
  std::vector<Training::BackgroundFigures> saves;
  for (int round = 0; round <= rounds; ++round) {
    saves.push_back(training.save_in_background());
  }
  if (world.rank() != 0) {
    return;
  }
  std::printf("%-46s %8s %8s %8s %9s %9s\n", "in the background", "step s", "start s", "end s", "of a step",
              "slowdown");
  for (size_t i = 0; i < saves.size(); ++i) {
    const auto& save = saves[i];
    std::printf("%-46s %8.3f %8.3f %8.3f %8.1f%% %6.3f s\n",
                str("save ", i + 1, ", written in ", save.steps, " steps").c_str(), save.step, save.start, save.end,
                100.0 * (save.start + save.end) / save.step, save.longer);
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::MpiSession session(&argc, &argv);
  if (argc < 3) {
    std::puts("usage: bench_checkpoint FOLDER ROUNDS [options of vit_hybrid train...]");
    return 64;
  }
  const std::string folder = argv[1];
  const int rounds = std::max(std::atoi(argv[2]), 1);
  if (session.world().rank() == 0) {
    std::filesystem::create_directories(folder);
    std::filesystem::remove_all(folder + "/checkpoints");  // of another run of this program
  }
  session.world().barrier();
  try {
    auto config = config_of({argv + 3, argv + argc}, session.world().size());
    train::set_threads(config.parallel.threads, session.world());
    Training training(session.world(), folder, std::move(config));
    print_bandwidths(session.world(), training, rounds);
    print_stalls(session.world(), training, rounds);
    training.remove_files();
  } catch (const std::exception& error) {
    comm::report_and_abort(error);
  }
  session.finalize();
  return 0;
}
