// DeviceRecorder: what becomes of work that cannot be recorded.
#include "src/base/device/device_graph.h"

#include <c10/util/Exception.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace vit_hybrid {

std::unique_ptr<DeviceGraph> DeviceRecorder::record(const std::function<void()>& work) {
  if (has_failed_) {
    return nullptr;
  }
  std::string reason;
  try {
    return try_to_record(work);
  } catch (const c10::Error& error) {
    const bool is_full = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
    if (is_full && unrecordable_ == Unrecordable::kRefused) {
      throw;  // told as such, with what would make room
    }
    const std::string text = error.what_without_backtrace();
    reason = text.substr(0, text.find('\n'));
  } catch (const Error& error) {
    reason = error.message();
  }
  reason = "the step could not be recorded as a CUDA graph: " + reason;
  if (unrecordable_ == Unrecordable::kRefused) {
    throw Error(ErrorClass::kInternal, reason, "--cuda-graph off trains without");
  }
  has_failed_ = true;
  log_warning(reason + "; it is started kernel by kernel from here on");
  return nullptr;
}

}  // namespace vit_hybrid
