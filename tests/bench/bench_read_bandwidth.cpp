// Bandwidth of every way to read weather data, as a ratio to plain pread of the same rows in the same run.
//
//   bench_read_bandwidth FOLDER [SAMPLES [ROUNDS]]
//
// writes SAMPLES (16) states of 20 x 360 x 720 float32 into FOLDER in three layouts (contiguous, one deflated chunk a
// state, shuffled and deflated), and reads them in a random order, ROUNDS (5) times in turn with pread. The files are
// in the page cache unless FOLDER's file system has none: what is measured is the work of the processor. Medians.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "data/datasets/weather_dataset.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/loading/prefetch_loader.h"
#include "data/reading/staged_files.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/random.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "tests/support/hdf5_files.h"

namespace {

using namespace vit_hybrid;
using namespace vit_hybrid::data;

constexpr int64_t kChannels = 20;
constexpr int64_t kHeight = 360;
constexpr int64_t kWidth = 720;
constexpr int64_t kRowBytes = kChannels * kHeight * kWidth * 4;

// Smooth fields with noise in the lower bits, which deflate makes somewhat smaller, as it does measured ones.
at::Tensor make_states(int64_t count) {
  at::Tensor states = at::empty({count, kChannels, kHeight, kWidth}, at::kFloat);
  float* to = states.data_ptr<float>();
  const RandomStream stream(1, Purpose::kTest);
  for (int64_t i = 0; i < states.numel(); ++i) {
    const auto x = static_cast<float>(i % kWidth) / static_cast<float>(kWidth);
    const auto y = static_cast<float>(i / kWidth % kHeight) / static_cast<float>(kHeight);
    const auto noise = static_cast<float>(stream.bits(static_cast<uint64_t>(i)) & 0xfff) * 1e-5f;
    to[i] = 280.0f + 20.0f * std::sin(6.28f * x) * y + noise;
  }
  return states;
}

void write_layouts(const std::string& folder, int64_t count) {
  const at::Tensor states = make_states(count);
  const std::vector<int64_t> chunk = {1, kChannels, kHeight, kWidth};
  for (const char* name : {"contiguous", "deflate", "shuffle"}) {
    const std::string path = str(folder, "/", name, "/1990.h5");
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    testing::TestDataset dataset{"fields", states};
    if (std::string(name) != "contiguous") {
      dataset.chunk = chunk;
      dataset.gzip = 1;
      dataset.shuffle = std::string(name) == "shuffle";
    }
    testing::write_hdf5_file(path, {dataset});
  }
}

std::vector<int64_t> shuffled(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<int64_t>(i);
  }
  const RandomStream stream(2, Purpose::kTest);
  for (size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[stream.below(i + 1, i)]);
  }
  return order;
}

// Buffers that are used one after the other, as many as a loader of depth 2 has.
class Buffers {
 public:
  char* next() { return bytes_[next_++ % bytes_.size()].data(); }

 private:
  std::vector<std::vector<char>> bytes_ = std::vector<std::vector<char>>(8, std::vector<char>(kRowBytes));
  size_t next_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Case {
  std::string name;
  std::function<void()> pass;
  std::vector<double> seconds = {};
};

class Bench {
 public:
  Bench(const comm::MpiGroup& group, std::string folder, int64_t count)
      : group_(group), folder_(std::move(folder)), order_(shuffled(count - 1)) {}

  /// Bytes of one pass: input and target of every sample.
  int64_t bytes() const { return 2 * static_cast<int64_t>(order_.size()) * kRowBytes; }

  Case plain(int num_threads) {
    const auto layout = inspect_dataset(folder_ + "/contiguous/1990.h5", "fields");
    return {str("pread, ", num_threads, " thread", num_threads > 1 ? "s" : ""), [this, layout, num_threads] {
              const PosixFile file(folder_ + "/contiguous/1990.h5", PosixFile::Access::kRead);
              in_threads(num_threads, [&](size_t sample, Buffers& buffers) {
                for (const int64_t row : {order_[sample], order_[sample] + 1}) {
                  file.read(layout.offset + row * kRowBytes, buffers.next(), kRowBytes);
                }
              });
            }};
  }

  Case rows(IoMode mode, int num_threads) {
    auto source = std::make_shared<RowSource>(group_, std::vector<std::string>{folder_ + "/contiguous/1990.h5"},
                                              "fields", "", mode);
    return {str(io_mode_name(mode), " rows, ", num_threads, " thread", num_threads > 1 ? "s" : ""),
            [this, source, num_threads] {
              in_threads(num_threads, [&](size_t sample, Buffers& buffers) {
                const RowRead input{0, order_[sample], buffers.next()};
                const RowRead target{0, order_[sample] + 1, buffers.next()};
                source->read({input, target});
              });
            }};
  }

  /// `stage_folder`: where the file is copied first (--stage-data node); empty: nowhere.
  Case samples(const std::string& layout, IoMode mode, int64_t num_threads, int64_t depth,
               const std::string& stage_folder = {}) {
    WeatherOptions options;
    options.folder = folder_ + "/" + layout;
    options.io = mode;
    options.stage_folder = stage_folder;
    auto dataset = std::make_shared<WeatherDataset>(group_, options);
    return {str(layout, " ", io_mode_name(mode), stage_folder.empty() ? "" : " staged", " samples, ", num_threads,
                " threads, depth ", depth),
            [this, dataset, num_threads, depth] {
              if (!dataset->background_reads()) {
                for (const int64_t sample : order_) {
                  dataset->read(std::vector<int64_t>{sample}, {}, 0);
                }
                return;
              }
              PrefetchLoader loader(
                  *dataset,
                  [this, next = size_t{0}]() mutable {
                    return next == order_.size() ? std::nullopt : std::optional(ReadRequest{{order_[next++]}, 0});
                  },
                  {.prefetch_depth = depth, .num_threads = num_threads});
              while (loader.next()) {
              }
            }};
  }

 private:
  void in_threads(int num_threads, const std::function<void(size_t, Buffers&)>& read) {
    buffers_.resize(std::max(buffers_.size(), static_cast<size_t>(num_threads)));
    const auto run = [&](size_t thread) {
      for (size_t i = thread; i < order_.size(); i += static_cast<size_t>(num_threads)) {
        read(i, buffers_[thread]);
      }
    };
    std::vector<std::thread> threads;
    for (size_t t = 1; t < static_cast<size_t>(num_threads); ++t) {
      threads.emplace_back(run, t);
    }
    run(0);
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  const comm::MpiGroup& group_;
  std::string folder_;
  std::vector<int64_t> order_;
  std::vector<Buffers> buffers_;
};

}  // namespace

int main(int argc, char** argv) {
  comm::MpiSession session(&argc, &argv);
  if (argc < 2) {
    std::puts("usage: bench_read_bandwidth FOLDER [SAMPLES [ROUNDS]]");
    return 64;
  }
  const int64_t count = argc > 2 ? std::atoll(argv[2]) : 16;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  write_layouts(argv[1], count);
  {
    Bench bench(session.world(), argv[1], count);
    std::vector<Case> cases = {bench.plain(1), bench.plain(2)};
    for (const int threads : {1, 2}) {
      cases.push_back(bench.rows(IoMode::kDirect, threads));
    }
    cases.push_back(bench.rows(IoMode::kIndependent, 1));
    for (const auto& [threads, depth] : {std::pair{0, 1}, {1, 1}, {1, 2}, {2, 2}, {2, 4}}) {
      cases.push_back(bench.samples("contiguous", IoMode::kDirect, threads, depth));
    }
    cases.push_back(bench.samples("contiguous", IoMode::kDirect, 2, 2, default_stage_folder()));
    cases.push_back(bench.samples("contiguous", IoMode::kIndependent, 0, 1));
    cases.push_back(bench.samples("contiguous", IoMode::kCollective, 0, 1));
    for (const char* layout : {"deflate", "shuffle"}) {
      cases.push_back(bench.samples(layout, IoMode::kIndependent, 0, 1));
      for (const auto& [threads, depth] : {std::pair{1, 2}, {2, 2}, {2, 4}}) {
        cases.push_back(bench.samples(layout, IoMode::kDirect, threads, depth));
      }
    }
    for (int round = 0; round <= rounds; ++round) {
      for (Case& one : cases) {
        const Timer timer;
        one.pass();
        if (round > 0) {  // the first one fills caches and pools
          one.seconds.push_back(timer.seconds());
        }
      }
    }
    const double plain = median(cases.front().seconds);
    std::printf("%-52s %8s %9s\n", "", "GB/s", "of pread");
    for (const Case& one : cases) {
      const double seconds = median(one.seconds);
      std::printf("%-52s %8.2f %8.0f%%\n", one.name.c_str(), static_cast<double>(bench.bytes()) / seconds / 1e9,
                  100.0 * plain / seconds);
    }
  }
  session.finalize();
  return 0;
}
