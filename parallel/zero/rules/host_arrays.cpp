// Widening and casting of chunks, by type.
#include "parallel/zero/rules/host_arrays.h"

#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::zero {

void check_stretch(const UpdateTensors& tensors, size_t num_states) {
  VH_ASSERT(tensors.state.size() == num_states, str(tensors.state.size(), " state tensors for ", num_states));
  const at::ScalarType master = tensors.weights.scalar_type();
  std::vector<at::Tensor> all = tensors.state;
  all.push_back(tensors.weights);
  for (const at::Tensor& tensor : all) {
    VH_ASSERT(tensor.scalar_type() == master, str("a state of type ", c10::toString(tensor.scalar_type())));
  }
  all.push_back(tensors.gradients);
  if (tensors.parameters.defined()) {
    all.push_back(tensors.parameters);
  }
  for (const at::Tensor& tensor : all) {
    VH_ASSERT(tensor.numel() == tensors.weights.numel() && tensor.is_contiguous(),
              str(tensor.numel(), " elements for ", tensors.weights.numel(), " weights"));
  }
}

const float* widened(const at::Tensor& values, int64_t begin, int64_t count, float* buffer) {
  if (values.scalar_type() == at::kFloat) {
    return values.const_data_ptr<float>() + begin;
  }
  if (values.scalar_type() == at::kBFloat16) {
    kernels::convert(values.const_data_ptr<c10::BFloat16>() + begin, buffer, count);
  } else {
    kernels::convert(values.const_data_ptr<c10::Half>() + begin, buffer, count);
  }
  return buffer;
}

const double* widened(const at::Tensor& values, int64_t begin, int64_t /*count*/, double* /*buffer*/) {
  return values.const_data_ptr<double>() + begin;
}

void cast_into(const at::Tensor& parameters, int64_t begin, int64_t count, const float* weights) {
  if (!parameters.defined()) {
    return;
  }
  if (parameters.scalar_type() == at::kBFloat16) {
    kernels::convert(weights, parameters.mutable_data_ptr<c10::BFloat16>() + begin, count);
  } else {
    kernels::convert(weights, parameters.mutable_data_ptr<c10::Half>() + begin, count);
  }
}

void cast_into(const at::Tensor& parameters, int64_t /*begin*/, int64_t /*count*/, const double* /*weights*/) {
  VH_ASSERT(!parameters.defined(), "parameters of a double master are themselves the master");
}

}  // namespace vit_hybrid::zero
