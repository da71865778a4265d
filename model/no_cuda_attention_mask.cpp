// Attention masks on a device in a program without CUDA, which has none.
#include "model/device_attention_mask.h"
#include "src/base/error.h"

namespace vit_hybrid::model {

at::Tensor device_attention_mask(const AttentionMaskKey& /*key*/, Range /*queries*/, Range /*keys*/,
                                 c10::Device /*device*/) {
  VH_ASSERT(false, "this program was built without CUDA");
}

}  // namespace vit_hybrid::model
