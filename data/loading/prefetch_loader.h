// PrefetchLoader: reads batches ahead of their use, on background threads; DeviceCopies: takes them to a GPU ahead.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "data/datasets/dataset.h"

namespace vit_hybrid::data {

/// One batch to read; a request without samples is passed over.
struct ReadRequest {
  std::vector<int64_t> samples;
  int64_t epoch = 0;
};

/// Gives the requests in the order of their use, then nothing for ever. Called by one thread at a time, which may be
/// any; it makes no MPI or HDF5 call.
using RequestSource = std::function<std::optional<ReadRequest>()>;

struct LoaderOptions {
  Parts parts = {};
  int64_t prefetch_depth = 2;  ///< batches read, or being read, that next() has not returned yet; at least 1
  c10::Device device =
      c10::Device(c10::kCPU);  ///< of the rank: of the threads too, which make page-locked memory for it
  int64_t num_threads = 1;  ///< background threads, of which no more run than batches are read ahead; 0 reads in next()
};

/// Reads the batches of a source in order. Used by one thread, the main one. Background threads make no MPI or HDF5
/// call; the destructor stops them at any time, after the reads they are in.
class PrefetchLoader {
 public:
  /// `dataset`, whose background_reads() is true, outlives the loader.
  PrefetchLoader(const Dataset& dataset, RequestSource source, LoaderOptions options);
  ~PrefetchLoader();
  PrefetchLoader(const PrefetchLoader&) = delete;
  PrefetchLoader& operator=(const PrefetchLoader&) = delete;

  /// The next batch, or nothing at the end. What reading it threw is thrown here, at its place in the order; after that
  /// the loader gives nothing more.
  std::optional<Batch> next();
  /// True if next() would return a batch at once.
  bool has_next();
  /// Seconds that next() has spent reading or waiting so far.
  double seconds_waited() const { return seconds_waited_; }
  /// True if batches are read on background threads.
  bool reads_ahead() const { return !threads_.empty(); }

 private:
  struct Result {
    Batch batch;
    std::exception_ptr error;
  };

  void run_thread();
  std::optional<std::pair<int64_t, ReadRequest>> claim_request();
  std::optional<ReadRequest> pull_request();
  Result read(const ReadRequest& request) const;
  std::optional<Batch> next_now();
  std::optional<Batch> next_prefetched();
  void stop();

  const Dataset& dataset_;
  const LoaderOptions options_;
  double seconds_waited_ = 0.0;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  RequestSource source_;
  std::map<int64_t, Result> results_;  // read and not yet returned, by number
  int64_t num_claimed_ = 0;
  int64_t num_returned_ = 0;
  bool at_end_ = false;  // of the source, or after an error
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// DeviceCopies: the batches of a loader on the rank's device, each copied while the one before it is computed on.
//
// A GPU's batches stay as they are stored until they are there (ValueForm): fp32 fields, and images as bytes, a quarter
// of their floats, from page-locked memory on a stream of its own. VitProgram normalizes them on the device, straight
// into the type of the activations, with the bits that the reading threads give on a CPU (normalize.h).

/// `tensor` as `type` on the device; from page-locked memory the copy is started, and the host goes on.
at::Tensor to_device(const at::Tensor& tensor, c10::Device device, at::ScalarType type);

/// On a GPU, batches travel on a stream of their own, one ahead of the step; they cross the bus as the data set gives
/// them. On the host they stay where they are. Used by the main thread.
class DeviceCopies {
 public:
  /// `loader` outlives it.
  DeviceCopies(PrefetchLoader& loader, c10::Device device);
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// The next batch, as PrefetchLoader::next() gives it: later work on the current stream sees its values. Starts the
  /// copy of the one after it, if that has been read.
  std::optional<Batch> next();

 private:
  class Stream;

  PrefetchLoader& loader_;
  std::unique_ptr<Stream> stream_;  // null on the host
};

}  // namespace vit_hybrid::data
