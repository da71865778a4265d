// The parts of a micro-batch.
#include "parallel/tensor/step_context.h"

#include <algorithm>

namespace vit_hybrid::tensor {

Partition parts_of(int64_t num_samples, int most) {
  return {num_samples, std::clamp<int64_t>(num_samples, 1, most)};
}

std::vector<StepContext> cut(const StepContext& micro_batch, int most) {
  const auto& samples = micro_batch.samples;
  const Partition partition = parts_of(std::ssize(samples), most);
  std::vector<StepContext> parts(static_cast<size_t>(partition.parts()), micro_batch);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Range range = partition.part(static_cast<int64_t>(i));
    parts[i].samples.assign(samples.begin() + range.begin, samples.begin() + range.end);
  }
  return parts;
}

}  // namespace vit_hybrid::tensor
