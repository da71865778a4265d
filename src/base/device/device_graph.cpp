// DeviceRecorder: what becomes of work that cannot be recorded.
#include "src/base/device/device_graph.h"

#include <c10/util/Exception.h>

#include <exception>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid {

namespace {

// Its first line: LibTorch's go on with advice and places in its source.
std::string reason_of(const std::exception& exception) {
  if (const auto* const own = dynamic_cast<const Error*>(&exception)) {
    return own->message();
  }
  const auto* const torch = dynamic_cast<const c10::Error*>(&exception);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : exception.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

void RecordingWarning::give(const std::string& reason) {
  if (!was_given_) {
    log_warning(reason + "; it is started kernel by kernel from here on");
  }
  was_given_ = true;
}

std::unique_ptr<DeviceGraph> DeviceRecorder::record(const std::function<void()>& work) {
  if (has_failed_) {
    return nullptr;
  }
  try {
    return try_to_record(work);
  } catch (const std::exception& exception) {
    const bool is_refused = unrecordable_ == Unrecordable::kRefused;
    if (is_refused && is_missing_memory(exception)) {
      throw;  // told as such, with what would make room
    }
    const std::string reason = "the step could not be recorded as a CUDA graph: " + reason_of(exception);
    if (is_refused) {
      throw Error(ErrorClass::kInternal, reason, "--cuda-graph off trains without");
    }
    has_failed_ = true;
    warning_->give(reason);
    return nullptr;
  }
}

}  // namespace vit_hybrid
