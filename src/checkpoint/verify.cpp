// Verification of checkpoints.
#include "src/checkpoint/verify.h"

#include <vector>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

std::string place_of(const CheckpointReader& checkpoint, const CheckpointTensor& tensor) {
  return str(checkpoint.path(), ": dataset '", tensor.path, "'");
}

at::Tensor read_verified(const CheckpointReader& checkpoint, const CheckpointTensor& tensor) {
  const at::Tensor values = checkpoint.read(tensor.path);
  TensorChecksum checksum;
  checksum.add(tensor.shape, std::vector<int64_t>(tensor.shape.size(), 0), values);
  if (checksum.text() != tensor.checksum) {
    throw Error(ErrorClass::kBadData,
                str(place_of(checkpoint, tensor), " has the checksum ", checksum.text(), ", it was ", tensor.checksum,
                    " when it was written"),
                "the file is damaged: use another checkpoint, or a copy of this one");
  }
  return values;
}

void verify_checkpoint(const CheckpointReader& checkpoint) {
  Progress progress("reading " + checkpoint.path(), std::ssize(checkpoint.tensors()));
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    read_verified(checkpoint, tensor);
    progress.add();
  }
}

}  // namespace vit_hybrid::train
