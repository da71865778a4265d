// SelfCommunicator: the group of one, on any device; everything is a copy or nothing.
#pragma once

#include <string>
#include <vector>

#include "parallel/comm/communicator_base.h"

namespace vit_hybrid::comm {

class SelfCommunicator final : public CommunicatorBase {
 public:
  SelfCommunicator(std::string axis, at::DeviceType device_type);

  std::string back_end() const override { return "self"; }

 private:
  Started start_all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  Started start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  Started start_all_gather(const at::Tensor& output, const at::Tensor& input) override;
  Started start_broadcast(const at::Tensor& tensor, int root) override;
  Started start_exchange(std::vector<Transfer> transfers) override;
  Started start_barrier() override;
};

}  // namespace vit_hybrid::comm
