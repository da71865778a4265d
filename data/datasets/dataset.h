// Dataset: samples by index, read as normalised tensors; what the loader and the trainer know of data.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/field_share.h"
#include "data/loading/tensor_pool.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

/// How values come: ready for the model, or as they are stored, for a device to normalize (Dataset::stored_scaling()).
enum class ValueForm { kNormalized, kStored };

/// What makes normalized numbers of stored ones, by channel: (x - mean) / std; of bytes x / 255 is taken.
struct StoredScaling {
  std::vector<float> mean;
  std::vector<float> std;
};

/// What of a sample a rank needs, and where: the first pipeline stage reads inputs, the last one targets.
struct Parts {
  bool input = true;
  bool target = true;
  bool state = false;  ///< of fields: Batch::states, that a forecast is compared with or is an increment of
  std::optional<FieldShare> share = {};       ///< of fields, where several ranks share the reading; nothing: all
  HostMemory memory = HostMemory::kPageable;  ///< of the batch
  ValueForm form = ValueForm::kNormalized;    ///< kStored only of data sets that have a stored_scaling()
};

/// Samples of one micro-batch or batch as the model takes them. A part that was not asked for is an undefined tensor.
struct Batch {
  std::vector<int64_t> samples;  ///< indices in the data set, the keys of augmentation and dropout
  /// [n, ...input_shape], float32, normalised; of a share [n, channels, rows, width], the channels of runs_of_share().
  at::Tensor inputs;
  at::Tensor targets;  ///< [n, ...target_shape], float32 fields or int64 classes (shape [n])
  /// The channels of the targets at the time of the inputs, [n, ...target_shape]; undefined where they are channels of
  /// `inputs`: then `states_in_inputs` says which.
  at::Tensor states;
  std::optional<Range> states_in_inputs;
  /// Where they are as stored: what inputs, and targets that are fields, are still to be normalized with. Images are
  /// uint8 [n, height, width, 3] then. Lives as long as the data set; null where the values are normalized.
  const StoredScaling* scaling = nullptr;
  const StoredScaling* target_scaling = nullptr;  ///< likewise, of targets and states
};

/// Gives the micro-batches of a step in their order, one a call.
using NextBatch = std::function<Batch()>;

/// A set of samples. size() and shapes are the same on all ranks.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual std::vector<int64_t> input_shape() const = 0;   ///< of one sample, e.g. [channels, height, width]
  virtual std::vector<int64_t> target_shape() const = 0;  ///< of one sample; empty for a class number
  /// Names of the channels of a field data set (for metrics); empty otherwise.
  virtual std::vector<std::string> channel_names() const = 0;
  /// Reads `samples` (host tensors). Where background_reads() is true it makes no MPI or HDF5 call and may run on any
  /// thread; else it runs on the main thread, collectively over the group the data set was opened with.
  /// Non-finite values, short reads and I/O errors throw Error naming file, dataset, sample and channel.
  virtual Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const = 0;
  virtual bool background_reads() const = 0;
  /// What kStored values are normalized with; null where there are none, and kNormalized is all that can be asked for.
  virtual const StoredScaling* stored_scaling() const { return nullptr; }
  /// How ranks may share the reading of fields [channels, height, width] so that nothing is read twice. Where samples
  /// are read whole (FieldCuts::row_unit 0) Parts::share is not set.
  virtual FieldCuts cuts() const { return {}; }
};

}  // namespace vit_hybrid::data
