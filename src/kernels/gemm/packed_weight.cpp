// Renews the copies of a weight; they are a class of memory of their own, which comes with the kernel that was chosen.
#include "src/kernels/gemm/packed_weight.h"

#include "src/base/memory_tracker.h"
#include "src/kernels/gemm/panels.h"

namespace vit_hybrid::kernels {

const at::Tensor& PackedWeight::forward_panels(int64_t version) {
  if (forward_.version != version) {
    const MemoryScope scope(MemoryClass::kPackedWeights);
    forward_ = {pack_transposed_panels(weight_, forward_.values), version};
  }
  return forward_.values;
}

const at::Tensor& PackedWeight::backward_panels(int64_t version) {
  if (backward_.version != version) {
    const MemoryScope scope(MemoryClass::kPackedWeights);
    backward_ = {pack_panels(weight_, backward_.values), version};
  }
  return backward_.values;
}

PackedWeight& PackedWeight::in_fp32(int64_t version) {
  const MemoryScope scope(MemoryClass::kPackedWeights);
  if (in_fp32_ == nullptr) {
    in_fp32_ = std::make_unique<PackedWeight>(weight_.to(at::kFloat));
  } else if (fp32_version_ != version) {
    in_fp32_->weight_.copy_(weight_);
  }
  fp32_version_ = version;
  return *in_fp32_;
}

}  // namespace vit_hybrid::kernels
