// Which part of the flat buffers a rank owns, who owns the others, and the tensors and tables of it for kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/mesh/device_mesh.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/rules/table_cursor.h"
#include "src/base/error.h"

namespace vit_hybrid::zero {

/// What the ranks of the data axis split among them: S. Rajbhandari et al., "ZeRO: memory optimizations toward training
/// trillion parameter models", SC20, section 5. Stage 0 is the plain replicated optimizer.
enum class ZeroStage : int { kReplicated = 0, kOptimizerState = 1 };

/// What a rank owns of the state of its slice of the model: part `shard` of every bucket (FlatLayout::shard_of()),
/// which ranks `replica` = 0, 1, ... hold each.
struct StatePlace {
  int shard = 0;
  int replica = 0;
};

/// The data axis as the state lies on it. Stage 0: all ranks are replicas; ZeRO-1: all are shards; ZeRO-1 over a part
/// of the axis, such as the ranks of a node: both, the partition and replication groups of Z. Zhang et al., "MiCS:
/// near-linear scaling for training gigantic model on public cloud", PVLDB 16, 2022.
struct StateGroups {
  comm::Communicator* shard = nullptr;    ///< ranks that split the state among them; null: each holds all of it
  comm::Communicator* replica = nullptr;  ///< ranks that hold the same part of it; null: no two do

  /// Parts that the flat layout of a run must have.
  int num_shards() const { return shard == nullptr ? 1 : shard->size(); }
  /// Communicator::share() of both.
  void share(const at::Tensor& tensor) const;
  StatePlace place() const { return {shard == nullptr ? 0 : shard->rank(), replica == nullptr ? 0 : replica->rank()}; }
};

/// Of a stage over the whole data axis.
StateGroups state_groups(comm::Communicator& data, ZeroStage stage);
/// Of a mesh: over the parts of its data axis where it is cut.
StateGroups state_groups(mesh::DeviceMesh& mesh, ZeroStage stage);

/// Flat tensors on one device: master weights and state of the owned elements alone, the flat buffers whole; which
/// element belongs to which, and their weight decays, say the segments.
struct OwnedTensors {
  at::Tensor master;              ///< undefined where the parameters are the master weights
  std::vector<at::Tensor> state;  ///< in the order of UpdateRule::state_names()
  at::Tensor parameters;
  at::Tensor gradients;
  at::Tensor segments;  ///< segment_tensor()
};

/// `rows` x `width` bytes at `bytes` on the host as a tensor of bytes on `device`.
at::Tensor byte_tensor(const void* bytes, int64_t rows, int64_t width, at::Device device);

/// The entries' bytes, [N, sizeof(Entry)], on `device`.
template <class Entry>
at::Tensor table_tensor(const std::vector<Entry>& entries, at::Device device) {
  return byte_tensor(entries.data(), static_cast<int64_t>(entries.size()), int64_t{sizeof(Entry)}, device);
}

/// The array in a table_tensor(), on its device.
template <class Entry>
Table<Entry> table_in(const at::Tensor& table) {
  VH_ASSERT(table.scalar_type() == at::kByte && table.is_contiguous() && table.dim() == 2 &&
                table.size(1) == int64_t{sizeof(Entry)},
            "no table of such entries");
  return {reinterpret_cast<const Entry*>(table.const_data_ptr<uint8_t>()), table.size(0)};
}

/// table_tensor() of the segments. Asserts that they ascend from 0 and are aligned.
at::Tensor segment_tensor(const std::vector<Segment>& segments, at::Device device);

}  // namespace vit_hybrid::zero
