// Tables of segments as tensors, which own their memory on any device.
#include "parallel/zero/owned_tensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

at::Tensor segment_tensor(const std::vector<Segment>& segments, at::Device device) {
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    const bool ascends = i == 0 ? segment.begin == 0 : segment.begin > segments[i - 1].begin;
    VH_ASSERT(ascends && segment.begin % kSegmentAlignment == 0 && segment.shift % kSegmentAlignment == 0,
              str("segment ", i, " begins at ", segment.begin, ", shifted by ", segment.shift));
  }
  const auto count = static_cast<int64_t>(segments.size());
  const at::Tensor host = at::empty({count, int64_t{sizeof(Segment)}}, at::kByte);
  std::copy_n(reinterpret_cast<const uint8_t*>(segments.data()), host.numel(), host.mutable_data_ptr<uint8_t>());
  return host.to(device);
}

SegmentTable segment_table(const at::Tensor& segments) {
  VH_ASSERT(segments.scalar_type() == at::kByte && segments.is_contiguous() && segments.dim() == 2 &&
                segments.size(1) == int64_t{sizeof(Segment)},
            "no table of segments");
  return {reinterpret_cast<const Segment*>(segments.const_data_ptr<uint8_t>()), segments.size(0)};
}

}  // namespace vit_hybrid::zero
