// DeviceMesh: the groups, split off the world by the lowest rank of each.
#include "parallel/mesh/device_mesh.h"

#include <string>

#include "parallel/comm/make_communicator.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::mesh {

DeviceMesh::DeviceMesh(const ParallelDims& dims, const comm::MpiGroup& world, c10::Device device,
                       const comm::TransportOptions& options)
    : dims_(dims), rank_(world.rank()), coordinate_(dims.coordinate(world.rank())), device_(device) {
  VH_ASSERT(world.size() == dims.size(), str(dims.text(), " on ", world.size(), " ranks"));
  comm::TransportOptions collectives = options;  // stages exchange, nobody else does
  collectives.connects_neighbours = false;
  world_ = comm::make_communicator("world", world.duplicate(), device, nullptr, collectives);
  if (!device.is_cpu()) {
    host_world_ = comm::make_communicator("host world", world.duplicate(), at::kCPU, nullptr, options);
  }
  const auto make = [&](std::string_view name, const std::vector<Axis>& axes) {
    // A group is known by its lowest rank.
    const int color = dims_.group(rank_, axes).front();
    comm::TransportOptions own = collectives;
    own.connects_neighbours = axes == std::vector{Axis::kPipeline};
    return comm::make_communicator(std::string(name), world.split(color), device, world_.get(), own);
  };
  for (const Axis axis : kAxes)
    axes_[static_cast<size_t>(axis)] = make(axis_name(axis), {axis});
  model_ = make("model", {Axis::kTensor, Axis::kPipeline});
}

}  // namespace vit_hybrid::mesh
