// BandExchange: a broadcast from each rank that has rows, and one copy of each band to its place.
#include "data/loading/band_exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "data/loading/device_copies.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::data {

BandExchange::BandExchange(comm::Communicator& ranks, const Dataset& dataset) : ranks_(ranks) {
  const int64_t unit = dataset.band_unit();
  if (unit == 0 || ranks.size() == 1) {
    return;
  }
  const int64_t rows = dataset.input_shape()[1];
  const Partition units((rows + unit - 1) / unit, ranks.size());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const Range part = units.part(rank);
    bands_.push_back({std::min(part.begin * unit, rows), std::min(part.end * unit, rows)});
  }
}

std::optional<Range> BandExchange::own() const {
  return bands_.empty() ? std::nullopt : std::optional(bands_[static_cast<size_t>(ranks_.rank())]);
}

at::Tensor BandExchange::join(const at::Tensor& band) {
  if (bands_.empty()) {
    return band;
  }
  const MemoryScope scope(MemoryClass::kData);
  const bool on_host = ranks_.device_type() == at::kCPU;
  const auto take = [&](std::vector<int64_t> shape, Range rows) {
    shape[2] = rows.size();
    return on_host ? pool_.take(shape, band.scalar_type())
                   : at::empty(shape, at::TensorOptions(band.scalar_type()).device(ranks_.device_type()));
  };
  const std::vector<int64_t> shape = band.sizes().vec();
  std::vector<at::Tensor> parts;
  std::vector<comm::Work> works;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Range rows = bands_[static_cast<size_t>(rank)];
    parts.push_back(rank == ranks_.rank() ? to_device(band, ranks_.device_type(), band.scalar_type())
                                          : take(shape, rows));
    if (!rows.empty()) {
      works.push_back(ranks_.broadcast(parts.back(), rank));
    }
  }
  at::Tensor whole = take(shape, {0, bands_.back().end});
  for (comm::Work& work : works) {
    work.wait();
  }
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    whole.narrow(2, bands_[rank].begin, bands_[rank].size()).copy_(parts[rank]);
  }
  return whole;
}

}  // namespace vit_hybrid::data
