// Bandwidth of reading weather by the names of its channels, from a Zarr store or NetCDF-4 files, in values.
//
//   bench_stores DATA CHANNELS [ROUNDS]
//
// reads all states of DATA, each once, in the order of time, by one and by two threads: as rows (where values go to a
// buffer), and as normalised samples of a loader. One line a way: its name, GB/s (median of ROUNDS, 5).
// compare_stores.py sets them beside pread, the codecs' libraries, and zarr-python with a DataLoader.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "data/datasets/weather_dataset.h"
#include "data/datasets/year_files.h"
#include "data/loading/prefetch_loader.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/text.h"
#include "src/base/timer.h"

namespace {

using namespace vit_hybrid;
using namespace vit_hybrid::data;

double median_seconds(int rounds, const std::function<void()>& pass) {
  std::vector<double> seconds;
  for (int round = 0; round <= rounds; ++round) {
    const Timer timer;
    pass();
    if (round > 0) {  // the first one fills caches and pools
      seconds.push_back(timer.seconds());
    }
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

void print_rate(const std::string& name, double bytes, double seconds) {
  std::printf("%-32s %8.3f\n", name.c_str(), bytes / seconds / 1e9);
}

void read_rows(const RowSource& source, int num_threads, int rounds) {
  const ArrayLayout& layout = source.files().front().layout;
  const int64_t rows = layout.num_rows();
  std::vector<at::Tensor> buffers;
  for (int t = 0; t < num_threads; ++t) {
    buffers.push_back(at::empty({layout.row_bytes()}, at::kByte));
  }
  const double seconds = median_seconds(rounds, [&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t) {
      threads.emplace_back([&, t] {
        for (int64_t row = t; row < rows; row += num_threads) {
          source.read({{0, row, buffers[static_cast<size_t>(t)].data_ptr()}});
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
  print_rate(str("rows, ", counted(static_cast<size_t>(num_threads), "thread")),
             static_cast<double>(rows * layout.row_bytes()), seconds);
}

void read_samples(const WeatherDataset& dataset, int num_threads, int rounds) {
  const auto shape = dataset.input_shape();
  const double seconds = median_seconds(rounds, [&] {
    PrefetchLoader loader(dataset,
                          [&, next = int64_t{0}]() mutable {
                            return next == dataset.size() ? std::nullopt : std::optional(ReadRequest{{next++}, 0});
                          },
                          {.parts = {.input = true, .target = false}, .prefetch_depth = 2, .num_threads = num_threads});
    while (loader.next()) {
    }
  });
  print_rate(str("samples, ", counted(static_cast<size_t>(num_threads), "thread")),
             static_cast<double>(dataset.size() * shape[0] * shape[1] * shape[2]) * sizeof(float), seconds);
}

}  // namespace

int main(int argc, char** argv) {
  comm::MpiSession session(&argc, &argv);
  if (argc < 3) {
    std::puts("usage: bench_stores DATA CHANNELS [ROUNDS]");
    return 64;
  }
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  {
    WeatherOptions options;
    options.folder = argv[1];
    options.fields.channels = argv[2];
    const RowSource source(session.world(), list_weather_files(options.folder), options.fields, IoMode::kDirect);
    const WeatherDataset dataset(session.world(), options);
    for (const int threads : {1, 2}) {
      read_rows(source, threads, rounds);
      read_samples(dataset, threads, rounds);
    }
  }
  session.finalize();
  return 0;
}
