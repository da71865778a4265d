// Normalization on a GPU in a program without CUDA, where no batch is on one.
#include "data/loading/normalize.h"
#include "src/base/error.h"

namespace vit_hybrid::data {

void normalize_batch_cuda(const at::Tensor& /*batch*/, const at::Tensor& /*mean*/, const at::Tensor& /*std*/,
                          const at::Tensor& /*to*/) {
  VH_ASSERT(false, "this program was built without CUDA");
}

}  // namespace vit_hybrid::data
