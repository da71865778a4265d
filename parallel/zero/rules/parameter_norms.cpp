// Sums over the owners of each parameter.
#include "parallel/zero/rules/parameter_norms.h"

#include <ATen/ops/zeros.h>

#include <cmath>

#include "src/base/memory_tracker.h"

namespace vit_hybrid::zero {

ParameterNorms::ParameterNorms(const tensor::ParameterBuffer& buffer, comm::Communicator& data,
                               comm::Communicator& tensor, ZeroStage stage)
    : buffer_(buffer), data_(data), tensor_(tensor), stage_(stage) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  sums_ = at::zeros({static_cast<int64_t>(buffer.specs().size()), 2}, buffer.values().options().dtype(at::kDouble));
}

void ParameterNorms::clear() {
  sums_.zero_();
}

at::Tensor ParameterNorms::sums_of(int parameter) const {
  return sums_[parameter];
}

void ParameterNorms::reduce() {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  if (stage_ == ZeroStage::kOptimizerState) {
    data_.all_reduce(sums_, comm::ReduceOp::kSum).wait();
  }
  const auto& specs = buffer_.specs();
  for (size_t i = 0; i < specs.size() && tensor_.rank() != 0; ++i) {
    if (specs[i].replicated_over_tensor) {
      sums_[static_cast<int64_t>(i)].zero_();  // tensor rank 0 counts it
    }
  }
  tensor_.all_reduce(sums_, comm::ReduceOp::kSum).wait();
  host_ = sums_.cpu();
}

double ParameterNorms::norm(int parameter, int64_t which) const {
  return std::sqrt(host_.const_data_ptr<double>()[2 * parameter + which]);
}

}  // namespace vit_hybrid::zero
