// A minimum over the ranks that have an error, and a broadcast of the lowest one's text.
#include "src/checkpoint/agreed_over.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <string>

#include "parallel/comm/agreement.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

namespace {

// Every rank's text becomes that of `root`.
std::string broadcast(comm::Communicator& group, c10::Device device, const std::string& text, int root) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), options);
  group.broadcast(size, root).wait();
  if (size.item<int64_t>() == 0) {
    return {};
  }
  at::Tensor bytes = at::zeros({size.item<int64_t>()}, at::TensorOptions(at::kByte));
  if (group.rank() == root) {
    std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  }
  bytes = bytes.to(device);
  group.broadcast(bytes, root).wait();
  bytes = bytes.cpu();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

}  // namespace

void agree_over(comm::Communicator& group, c10::Device device, const std::optional<Error>& mine) {
  const MemoryScope scope(MemoryClass::kCommunication);
  const at::Tensor first =
      at::full({1}, mine ? group.rank() : group.size(), at::TensorOptions(at::kLong).device(device));
  group.all_reduce(first, comm::ReduceOp::kMin).wait();
  const auto root = static_cast<int>(first.item<int64_t>());
  if (root == group.size()) {
    return;
  }
  const Error error = mine ? *mine : Error(ErrorClass::kInternal, "");
  const int exit_code = std::stoi(broadcast(group, device, std::to_string(error.exit_code()), root));
  const std::string message = broadcast(group, device, error.message(), root);
  const std::string hint = broadcast(group, device, error.hint(), root);
  const std::string place = broadcast(group, device, comm::process_place().text(), root);
  throw comm::AgreedError(Error(static_cast<ErrorClass>(exit_code), message, hint), place, group.rank() == root);
}

}  // namespace vit_hybrid::train
