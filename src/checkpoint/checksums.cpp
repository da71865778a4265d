// add_up(): one message for all tensors.
#include "src/checkpoint/checksums.h"

#include <ATen/ops/empty.h>

#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

void add_up(Checksums& checksums, comm::Communicator& ranks, c10::Device device) {
  const MemoryScope scope(MemoryClass::kCommunication);
  // In halves of 32 bits, so that no sum of signed numbers overflows.
  at::Tensor halves = at::empty({2 * static_cast<int64_t>(checksums.size())}, at::TensorOptions(at::kLong));
  auto* half = halves.mutable_data_ptr<int64_t>();
  for (const auto& [name, checksum] : checksums) {
    *half++ = static_cast<int64_t>(checksum.value() & 0xffffffffU);
    *half++ = static_cast<int64_t>(checksum.value() >> 32U);
  }
  halves = halves.to(device);
  ranks.all_reduce(halves, comm::ReduceOp::kSum).wait();
  halves = halves.cpu();
  const auto* added = halves.const_data_ptr<int64_t>();
  for (auto& [name, checksum] : checksums) {
    checksum = {};
    checksum.add(static_cast<uint64_t>(added[0]) + (static_cast<uint64_t>(added[1]) << 32U));
    added += 2;
  }
}

}  // namespace vit_hybrid::train
