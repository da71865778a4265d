// A data axis on ranks of the world, and the optimizer state on parts of it.
#pragma once

#include <memory>
#include <vector>

#include "parallel/comm/make_communicator.h"
#include "parallel/zero/sharding.h"

namespace vit_hybrid::testing {

/// Ranks of the world that follow each other, `size` in each group but the last. Collective over the world.
inline comm::MpiGroup data_ranks(int size) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  return world.split(world.rank() / size);
}

/// The sizes of the parts into which a data axis can be cut: from the replicated optimizer to ZeRO-1 over all of it.
inline std::vector<int> part_sizes(int data_size) {
  std::vector<int> sizes;
  for (int size = 1; size <= data_size; ++size) {
    if (data_size % size == 0) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

/// Communicators of the data axis `ranks`, of which `part` ranks each split the state. Collective over `ranks`.
class DataAxis {
 public:
  DataAxis(const comm::MpiGroup& ranks, int part)
      : data_(comm::make_communicator("data", ranks.duplicate(), at::kCPU)),
        shard_(comm::make_communicator("shard", ranks.split(ranks.rank() / part), at::kCPU)),
        replica_(comm::make_communicator("replica", ranks.split(ranks.rank() % part), at::kCPU)) {}

  comm::Communicator& data() const { return *data_; }
  zero::StateGroups groups() const {
    return {shard_->size() > 1 ? shard_.get() : nullptr, replica_->size() > 1 ? replica_.get() : nullptr};
  }

 private:
  std::unique_ptr<comm::Communicator> data_, shard_, replica_;
};

}  // namespace vit_hybrid::testing
