// Tables (rules/table_cursor.h) in tensors, for kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "parallel/zero/rules/table_cursor.h"
#include "src/base/error.h"

namespace vit_hybrid::zero {

/// The entries' bytes, [N, sizeof(Entry)], on `device`.
template <class Entry>
at::Tensor table_tensor(const std::vector<Entry>& entries, at::Device device) {
  const at::Tensor host = at::empty({static_cast<int64_t>(entries.size()), int64_t{sizeof(Entry)}}, at::kByte);
  std::copy_n(reinterpret_cast<const uint8_t*>(entries.data()), host.numel(), host.mutable_data_ptr<uint8_t>());
  return host.to(device);
}

/// The array in a table_tensor(), on its device.
template <class Entry>
Table<Entry> table_in(const at::Tensor& table) {
  VH_ASSERT(table.scalar_type() == at::kByte && table.is_contiguous() && table.dim() == 2 &&
                table.size(1) == int64_t{sizeof(Entry)},
            "no table of such entries");
  return {reinterpret_cast<const Entry*>(table.const_data_ptr<uint8_t>()), table.size(0)};
}

}  // namespace vit_hybrid::zero
