// BandExchange: whole fields from the bands of rows that the ranks of a stage have read.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/loading/tensor_pool.h"
#include "parallel/comm/communicator.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

/// Cuts the rows of a field data set into one band a rank (a Partition of the units that the data set names), and puts
/// the bands together on all ranks. With one rank, or a data set that is read whole, it leaves everything as it is.
class BandExchange {
 public:
  /// `ranks` outlives it.
  BandExchange(comm::Communicator& ranks, const Dataset& dataset);

  /// The rows that this rank reads, maybe none; nothing where samples are read whole.
  std::optional<Range> own() const;
  /// `band` [n, channels, own rows, width] becomes [n, channels, all rows, width], on the device of the communicator.
  /// Collective over the ranks.
  at::Tensor join(const at::Tensor& band);

 private:
  comm::Communicator& ranks_;
  std::vector<Range> bands_;  // rows of each rank; empty: samples are read whole
  TensorPool pool_;           // of host tensors
};

}  // namespace vit_hybrid::data
