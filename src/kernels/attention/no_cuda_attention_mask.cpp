// Attention masks on a device in a program without CUDA, which has none.
#include "src/base/error.h"
#include "src/kernels/attention/device_attention_mask.h"

namespace vit_hybrid::kernels {

at::Tensor device_attention_mask(const AttentionMaskKey& /*key*/, Range /*queries*/, Range /*keys*/,
                                 c10::Device /*device*/) {
  VH_ASSERT(false, "this program was built without CUDA");
}

}  // namespace vit_hybrid::kernels
