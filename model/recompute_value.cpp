// Storage that is emptied and filled again behind the tensors that share it (as Megatron-LM's checkpoint without output
// does), so that any node, LibTorch's own ones too, can keep a tensor that takes no memory.
#include "model/recompute_value.h"

#include <c10/core/Storage.h>

#include <utility>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/kernels/own_node.h"

namespace vit_hybrid::model {

namespace {

at::DataPtr take_memory(const c10::Storage& storage) {
  return storage.set_data_ptr(at::DataPtr(nullptr, storage.device()));
}

void fill(const c10::Storage& storage, const at::Tensor& again) {
  VH_ASSERT(again.storage_offset() == 0 && again.storage().nbytes() == storage.nbytes(),
            str(again.storage().nbytes(), " bytes computed again for ", storage.nbytes()));
  storage.set_data_ptr_noswap(take_memory(again.storage()));
}

}  // namespace

at::Tensor recompute_in_backward(const at::Tensor& value, const at::Tensor& result,
                                 std::function<at::Tensor()> compute) {
  if (value.numel() == 0 || !kernels::records({result})) {
    return result;
  }
  VH_ASSERT(value.storage_offset() == 0 && value.nbytes() == value.storage().nbytes(), "a view cannot be given back");
  const c10::Storage& storage = value.storage();
  VH_ASSERT(!result.is_alias_of(value), "the result is a view of what would be given back");
  static_cast<void>(take_memory(storage));
  return kernels::record("recompute", result, {result}, [storage, compute = std::move(compute)](const at::Tensor& dy) {
    const MemoryScope scope(MemoryClass::kActivations);
    fill(storage, compute());
    return std::vector<at::Tensor>{dy};
  });
}

}  // namespace vit_hybrid::model
