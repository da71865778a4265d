// Host tensors in memory that other processes of the machine can map: what they are called there, and the mapping.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "src/base/error.h"

namespace vit_hybrid {

/// Zeros, [elements]; on the host in a file without a name (memfd_create(2)), which goes with the tensor and needs no
/// room in /dev/shm. Counted as any other tensor. For few that live long: each is a mapping and a descriptor. Ordinary
/// zeros where such a file cannot be made (unshared() says why), or elements is 0. Throws c10::OutOfMemoryError.
at::Tensor shareable_zeros(int64_t elements, const at::TensorOptions& options);

/// How another process of the machine finds the memory of a tensor; a few plain bytes, to be sent to it.
struct SharedName {
  int64_t process = 0;
  int64_t descriptor = -1;
  uint64_t device = 0, file = 0;  ///< by which it is known from another that has the descriptor meanwhile
  int64_t bytes = 0;              ///< 0: of no tensor of shareable_zeros()
};

/// Of the whole memory of such a tensor, or of a view of one.
SharedName shared_name(const at::Tensor& tensor);

/// The memory of a tensor of another process, which lives as long as this, too. Throws Error(kIo) where this process
/// may not map it: another user's, or one that it does not see (containers).
std::shared_ptr<char> map_shared(const SharedName& name);

/// The first error for which memory of this process, or of one that it works with, is not shared; as note_unshared()
/// was told.
std::optional<Error> unshared();
void note_unshared(const Error& error);

/// Most bytes that such tensors of this process held at a time.
int64_t shareable_bytes_peak();

}  // namespace vit_hybrid
