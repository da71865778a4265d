// ParameterBuffer: flat parameters and gradients, views of them, and the weights' initial values.
//
// Parameters never require grad: they are plain views of the flat buffer, and each layer records one autograd node with
// a hand-written backward (record). So gradients land where ZeRO wants them, nothing accumulates twice, and a
// layer's memory is what its backward captures. The buffer lives beside the layers, not in zero: layers need the views,
// ZeRO works on the buckets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_spec.h"
#include "src/base/partition.h"

namespace vit_hybrid::tensor {

/// Stands for all places that hold a parameter: the buffer's view, and the master weights where they are others.
class ParameterWriter {
 public:
  virtual ~ParameterWriter() = default;
  /// Calls `fill` with a tensor of the local shape of spec `parameter`, which holds its values and takes new ones, in
  /// the widest type that they are kept in. Local.
  virtual void write(int parameter, const std::function<void(const at::Tensor& values)>& fill) = 0;
};

/// Where the parameters lie in the flat buffers: buckets of whole parameters, each padded so that it divides into
/// `shards` equal, aligned parts. Parameters lie in the reverse order of the specs, so that bucket 0 is the first whose
/// gradients are complete in backward. Parameters and shards begin at multiples of 16 elements, so that vectors of the
/// optimizer lie in one parameter and are aligned.
struct FlatLayout {
  struct Bucket {
    Range range;               ///< elements of the flat buffer, padding included
    std::vector<int> members;  ///< indices of the specs in it
  };
  std::vector<Range> slots;    ///< by spec index: its elements in the flat buffer
  std::vector<int> bucket_of;  ///< by spec index
  std::vector<Bucket> buckets;
  int64_t size = 0;  ///< elements of the flat buffer
  int shards = 1;

  /// The elements of bucket `bucket` that shard `shard` owns.
  Range shard_of(int bucket, int shard) const;
};

/// Gradients of this type in a bucket of `bytes`; 0: as suits the device, 25 MiB on GPUs and 4 MiB on the host.
int64_t bucket_elements(int64_t bytes, at::ScalarType gradient, at::DeviceType device);

/// A pure function; a bucket is closed when it holds at least `bucket_elements`.
FlatLayout make_flat_layout(const std::vector<ParameterSpec>& specs, int64_t bucket_elements, int shards);
/// The same of parameters of so many elements.
FlatLayout flat_layout_of_sizes(const std::vector<int64_t>& sizes, int64_t bucket_elements, int shards);

/// What a module holds of one parameter: views of the flat buffers and its index among the specs.
struct Parameter {
  at::Tensor value;     ///< local shape, compute type; never requires grad
  at::Tensor gradient;  ///< local shape, gradient type; backward adds into it. Undefined in a buffer without gradients
  int index = -1;
};

/// Allocates the flat buffers once (parameters in the compute type, gradients in the gradient type), zeroed.
///
/// Values of parameters may be on their way from the ranks that updated them, while forward computes with those that
/// are there: whoever keeps views, as layers do, asks await() before it reads them. All that is had from values(),
/// parameter() and write() is there.
class ParameterBuffer final : public ParameterWriter {
 public:
  /// `gradient`: nullopt where the model is used and not trained, and no gradients are allocated. `shareable`: as
  /// shareable_zeros(), for replicas that add up and gather them.
  ParameterBuffer(std::vector<ParameterSpec> specs, FlatLayout layout, at::ScalarType compute,
                  std::optional<at::ScalarType> gradient, at::Device device, bool shareable = false);
  ~ParameterBuffer() override;
  ParameterBuffer(const ParameterBuffer&) = delete;
  ParameterBuffer& operator=(const ParameterBuffer&) = delete;

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const FlatLayout& layout() const { return layout_; }
  const at::Tensor& values() const;  ///< flat, [layout().size]
  bool has_gradients() const { return gradients_.defined(); }
  const at::Tensor& gradients() const { return gradients_; }  ///< flat, [layout().size]; undefined without
  const Parameter& parameter(int index) const;
  /// By canonical name; an unknown name is a broken invariant.
  const Parameter& parameter(const std::string& name) const;
  void write(int parameter, const std::function<void(const at::Tensor& values)>& fill) override;
  /// The values of a bucket are there when `arrival` is complete. Those that were expected before must be.
  void expect(size_t bucket, comm::Work arrival) { arrivals_.at(bucket) = std::move(arrival); }
  /// Returns when the values of the parameters with these indices are there, on a GPU for what the current stream does
  /// from now on.
  void await(const Range& parameters) const;
  void await_all() const;
  /// Rises with every optimizer step (and load): packed copies of weights are renewed when it has risen.
  int64_t version() const { return version_; }
  void bump_version() { ++version_; }

 private:
  std::vector<ParameterSpec> specs_;
  FlatLayout layout_;
  at::Tensor values_;
  at::Tensor gradients_;  // undefined where there are none
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, int> index_of_;
  mutable std::vector<comm::Work> arrivals_;  // by bucket
  int64_t version_ = 1;
};

/// Fills every parameter of `specs` with its initial values: element i of the global tensor is draw i of the stream
/// (seed, kInitialWeights, name), computed on the host in double and cast, so it is the same in every layout.
void initialize(const std::vector<ParameterSpec>& specs, ParameterWriter& parameters, uint64_t seed);

/// The initial values of one slice in double (host, local shape); what initialize() casts from.
at::Tensor initial_values(const ParameterSpec& spec, uint64_t seed);

}  // namespace vit_hybrid::tensor
