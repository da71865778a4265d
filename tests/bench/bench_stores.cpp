// Bandwidth of reading weather by the names of its channels, from a Zarr store or NetCDF-4 files, in values.
//
//   bench_stores DATA CHANNELS [ROUNDS]
//
// reads all states of DATA, each once, in the order of time, by one and by two threads: as rows (where values go to a
// buffer), and as normalised samples of a loader. Where a Zarr store's array has one codec (Blosc, Zstandard, zlib
// or gzip), `library` is what the library that this program is linked with makes of the same chunks, already in
// memory; where the only array is stored as it is, `pread` is its reading alone. One line a way: its name, GB/s (median
// of ROUNDS, 5), by the clock and by the processor's time, which other programs on the machine disturb less. The ways
// take turns, round by round; `rows/library` and its like are medians of the rounds' ratios of speeds. On several ranks
// these are one replica, whose tensor ranks share the reading of each sample without reading ahead: as they do it, and
// with one of them reading all. GB/s of samples that all ranks have then, and each rank's processor time in reading.
// compare_stores.py sets them beside zarr-python with a DataLoader.
#include <ATen/ops/empty.h>
#include <blosc.h>
#include <libdeflate.h>
#include <sys/resource.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/datasets/weather_dataset.h"
#include "data/datasets/year_files.h"
#include "data/loading/prefetch_loader.h"
#include "data/loading/step_input.h"
#include "data/reading/box_runs.h"
#include "data/reading/chunk_rows.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/timer.h"

namespace {

using namespace vit_hybrid;
using namespace vit_hybrid::data;

// One way of reading: all of the data by `num_threads` threads.
struct Way {
  std::string name;
  double bytes;
  std::function<void(int num_threads)> pass;
  std::vector<double> seconds = {};
  std::vector<double> processor_seconds = {};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void print_value(const std::string& name, double value) {
  std::printf("%-40s %8.3f\n", name.c_str(), value);
}

// Of speeds, where `size` times as many bytes were read.
void print_ratio(const std::string& name, double size, const std::vector<double>& seconds,
                 const std::vector<double>& of_library) {
  std::vector<double> ratios;
  std::transform(seconds.begin(), seconds.end(), of_library.begin(), std::back_inserter(ratios),
                 [&](double ours, double library) { return size * library / ours; });
  print_value(name, median(ratios));
}

// The last one is what others are set beside, where `has_roof`.
void measure(std::vector<Way> ways, bool has_roof, int num_threads, int rounds) {
  for (int round = 0; round <= rounds; ++round) {
    for (Way& way : ways) {
      const double before = processor_seconds();
      const Timer timer;
      way.pass(num_threads);
      if (round > 0) {  // the first one fills caches and pools
        way.seconds.push_back(timer.seconds());
        way.processor_seconds.push_back(processor_seconds() - before);
      }
    }
  }
  const std::string threads = str(", ", counted(static_cast<size_t>(num_threads), "thread"));
  for (const Way& way : ways) {
    print_value(way.name + threads, way.bytes / median(way.seconds) / 1e9);
    print_value(way.name + ", processor" + threads, way.bytes / median(way.processor_seconds) / 1e9);
  }
  const Way& roof = ways.back();
  for (const Way& way : ways) {
    if (has_roof && &way != &roof) {
      const double size = way.bytes / roof.bytes;
      const std::string name = str(way.name, "/", roof.name);
      print_ratio(name + threads, size, way.seconds, roof.seconds);
      print_ratio(name + ", processor" + threads, size, way.processor_seconds, roof.processor_seconds);
    }
  }
}

// Calls work(thread, index) for all indices below `count`.
void share(int num_threads, int64_t count, const std::function<void(size_t, int64_t)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t index = t; index < count; index += num_threads) {
        work(static_cast<size_t>(t), index);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

constexpr int kMostThreads = 2;

std::vector<at::Tensor> buffers_of(int64_t bytes) {
  std::vector<at::Tensor> buffers;
  for (int t = 0; t < kMostThreads; ++t) {
    buffers.push_back(at::empty({bytes}, at::kByte));
  }
  return buffers;
}

Way rows_of(const RowSource& source) {
  const ArrayLayout& layout = source.files().front().layout;
  const int64_t rows = layout.num_rows();
  return {"rows", static_cast<double>(rows * layout.row_bytes()),
          [&source, rows, buffers = buffers_of(layout.row_bytes())](int num_threads) {
            share(num_threads, rows, [&](size_t thread, int64_t row) {
              source.read({{0, row, buffers[thread].data_ptr()}});
            });
          }};
}

// Several times over, as a training does: a loader's first batches are read to fresh memory, whose page faults cost
// more than the reading.
Way samples_of(const WeatherDataset& dataset) {
  constexpr int64_t kEpochs = 4;
  const auto shape = dataset.input_shape();
  return {"samples", static_cast<double>(kEpochs * dataset.size() * shape[0] * shape[1] * shape[2]) * sizeof(float),
          [&dataset](int num_threads) {
            PrefetchLoader loader(
                dataset,
                [size = std::max<int64_t>(dataset.size(), 1), next = int64_t{0}]() mutable {
                  const int64_t index = next++;
                  return index < kEpochs * size ? std::optional(ReadRequest{{index % size}, 0}) : std::nullopt;
                },
                {.parts = {.input = true, .target = false}, .prefetch_depth = 2, .num_threads = num_threads});
            while (loader.next()) {
            }
          }};
}

using Decode = size_t (*)(const std::string& stored, char* to, size_t space);

size_t by_blosc(const std::string& stored, char* to, size_t space) {
  return static_cast<size_t>(blosc_decompress_ctx(stored.data(), to, space, /*numinternalthreads=*/1));
}

size_t by_zstd(const std::string& stored, char* to, size_t space) {
  thread_local const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  return ZSTD_decompressDCtx(context.get(), to, space, stored.data(), stored.size());
}

size_t by_libdeflate(const std::string& stored, char* to, size_t space) {
  thread_local const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> decompressor(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  auto* const decompress = stored[0] == '\x1f' ? libdeflate_gzip_decompress : libdeflate_zlib_decompress;
  size_t count = 0;
  decompress(decompressor.get(), stored.data(), stored.size(), to, space, &count);
  return count;
}

Decode library_of(const ArrayLayout& array) {
  if (array.filters.size() != 1) {
    return nullptr;
  }
  switch (static_cast<ChunkFilter>(array.filters.front())) {
    case ChunkFilter::kBlosc:
      return by_blosc;
    case ChunkFilter::kZstd:
      return by_zstd;
    case ChunkFilter::kDeflate:
      return by_libdeflate;
    default:
      return nullptr;
  }
}

std::vector<std::string> chunk_files(const RowFile& file, const ArrayLayout& array) {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(str(file.path, "/", array.chunk_files.prefix))) {
    const char first = entry.path().filename().string().front();
    if (entry.is_regular_file() && first >= '0' && first <= '9') {
      paths.push_back(entry.path().string());
    }
  }
  return paths;
}

Way library_way(const std::vector<std::string>& paths, Decode decode, int64_t space) {
  std::vector<std::string> chunks;
  for (const std::string& path : paths) {
    const PosixFile chunk(path, PosixFile::Access::kRead);
    chunks.emplace_back(static_cast<size_t>(chunk.size()), '\0');
    chunk.read(0, chunks.back().data(), chunk.size());
  }
  const auto count = static_cast<int64_t>(chunks.size());
  return {"library", static_cast<double>(count * space),
          [chunks = std::move(chunks), count, space, decode, buffers = buffers_of(space)](int num_threads) {
            share(num_threads, count, [&](size_t thread, int64_t number) {
              const size_t size = decode(chunks[static_cast<size_t>(number)],
                                         static_cast<char*>(buffers[thread].data_ptr()), static_cast<size_t>(space));
              VH_ASSERT(size == static_cast<size_t>(space), "a chunk is whole");
            });
          }};
}

// `count` pieces of `bytes` each: of files of their own, or of one file from `offset` on.
Way pread_way(std::vector<std::string> paths, int64_t offset, int64_t count, int64_t bytes) {
  return {"pread", static_cast<double>(count * bytes),
          [paths = std::move(paths), offset, count, bytes, buffers = buffers_of(bytes)](int num_threads) {
            share(num_threads, count, [&](size_t thread, int64_t number) {
              const bool is_one = paths.size() == 1;
              const PosixFile file(paths[is_one ? 0 : static_cast<size_t>(number)], PosixFile::Access::kRead);
              file.read(is_one ? offset + number * bytes : 0, buffers[thread].data_ptr(), bytes);
            });
          }};
}

// Of the first file's only array, in the order of its chunks' names.
std::optional<Way> roof_of(const RowFile& file) {
  const auto arrays = file.layout.stored_arrays();
  const ArrayLayout& array = *arrays.front();
  if (arrays.size() > 1) {
    return std::nullopt;
  }
  if (array.storage == ArrayLayout::Storage::kContiguous) {
    return pread_way({file.path_of(array)}, array.offset, array.num_rows(), array.row_bytes());
  }
  if (array.storage != ArrayLayout::Storage::kChunkFiles || !array.chunk_files.shard.empty()) {
    return std::nullopt;
  }
  std::vector<std::string> paths = chunk_files(file, array);
  const int64_t space = num_elements(array.chunk) * static_cast<int64_t>(c10::elementSize(array.type));
  if (array.filters.empty()) {
    return pread_way(paths, 0, std::ssize(paths), space);
  }
  const Decode decode = library_of(array);
  return decode == nullptr ? std::nullopt : std::optional(library_way(paths, decode, space));
}

// Notes the processor's time of reading, and may say that nothing can be shared.
class NotedDataset : public Dataset {
 public:
  NotedDataset(const Dataset& dataset, bool is_shared) : dataset_(dataset), cuts_(dataset.cuts()) {
    if (!is_shared) {
      cuts_.row_unit = cuts_.rows;
      cuts_.units = {{{0, cuts_.units.back().channels.end}, 1}};
    }
  }
  int64_t size() const override { return dataset_.size(); }
  std::vector<int64_t> input_shape() const override { return dataset_.input_shape(); }
  std::vector<int64_t> target_shape() const override { return dataset_.target_shape(); }
  std::vector<std::string> channel_names() const override { return dataset_.channel_names(); }
  bool background_reads() const override { return true; }
  FieldCuts cuts() const override { return cuts_; }
  Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const override {
    const std::clock_t begin = std::clock();
    Batch batch = dataset_.read(samples, parts, epoch);
    seconds_ += static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    return batch;
  }
  double seconds() const { return seconds_; }

 private:
  const Dataset& dataset_;
  FieldCuts cuts_;
  mutable double seconds_ = 0.0;
};

void measure_shared(const comm::MpiGroup& world, const WeatherDataset& dataset, bool is_shared, int rounds) {
  mesh::DeviceMesh mesh(mesh::ParallelDims(1, world.size(), 1), world, c10::Device(at::kCPU));
  const auto sampler = std::make_shared<DistributedSampler>(
      SamplerOptions{.num_samples = dataset.size(), .global_batch_size = 1, .order = SampleOrder::kInOrder});
  const NotedDataset noted(dataset, is_shared);
  std::vector<double> seconds;
  for (int round = 0; round <= rounds; ++round) {
    const Timer timer;
    StepInput input(noted, sampler, mesh.tensor(), {.num_steps = dataset.size(), .loader = {.num_threads = 0}});
    const EpochPlan plan = sampler->epoch(0);
    for (int64_t step = 0; step < plan.num_steps(); ++step) {
      input.open_step(plan, step)();
    }
    if (round > 0) {  // the first one fills caches and pools
      seconds.push_back(timer.seconds());
    }
  }
  const auto shape = dataset.input_shape();
  const int64_t values = 2 * dataset.size() * shape[0] * shape[1] * shape[2];  // inputs and targets
  for (int rank = 0; rank < world.size(); ++rank) {
    const int64_t microseconds =
        world.sum(rank == world.rank() ? std::llround(noted.seconds() / (rounds + 1) * 1e6) : 0);
    if (world.rank() == 0) {
      print_value(str("rank ", rank, ", processor seconds"), static_cast<double>(microseconds) / 1e6);
    }
  }
  if (world.rank() == 0) {
    print_value(is_shared ? "shared" : "one rank reads",
                static_cast<double>(values) * sizeof(float) / median(seconds) / 1e9);
  }
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
    if (session.world().size() > 1) {
      measure_shared(session.world(), dataset, false, rounds);
      measure_shared(session.world(), dataset, true, rounds);
    }
    std::vector<Way> ways = {rows_of(source), samples_of(dataset)};
    auto roof = roof_of(source.files().front());
    if (roof) {
      ways.push_back(std::move(*roof));
    }
    for (int threads = 1; session.world().size() == 1 && threads <= kMostThreads; ++threads) {
      measure(ways, roof.has_value(), threads, rounds);
    }
  }
  session.finalize();
  return 0;
}
