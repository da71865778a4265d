// Device graphs in a program without CUDA: there is no device.
#include "src/base/device/device_graph.h"
#include "src/base/error.h"

namespace vit_hybrid {

std::unique_ptr<DeviceRecorder> make_device_recorder() {
  VH_ASSERT(false, "this program was built without CUDA");
}

}  // namespace vit_hybrid
