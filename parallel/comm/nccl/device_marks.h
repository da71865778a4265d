// Marks on the streams of a GPU, for slices of a trace.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "src/base/trace.h"

namespace vit_hybrid::comm {

class DeviceStream;

/// What trace::start_recording() takes where `device` computes. The clocks of the device and of the host are compared
/// now, for which the device is waited for; CUDA counts from there in steps of half a microsecond, of one after 10 s.
/// Null on CPUs and in a program built without CUDA.
trace::MakeMark device_marks(c10::Device device);

/// A mark after what is on `stream`; null where device_marks() was not called before, and while the stream's work is
/// recorded into a graph.
std::unique_ptr<trace::DeviceMark> mark_on(const DeviceStream& stream);

}  // namespace vit_hybrid::comm
