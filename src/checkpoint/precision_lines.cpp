// precision_lines(): from the stored configuration and the state of the loss scaler.
#include "src/checkpoint/precision_lines.h"

#include "src/base/text.h"
#include "src/config/stored_options.h"

namespace vit_hybrid::train {

namespace {

// Empty where there was none.
std::string loss_scale_text(const CheckpointInfo& info, const std::string& precision, const std::string& option) {
  const bool is_dynamic = option.empty() || option == "dynamic";
  if (precision == "fp16" && !is_dynamic) {
    return "fixed " + option;
  }
  return info.loss_scale > 0.0 ? str(info.loss_scale, " for ", info.good_steps, " steps") : "";
}

}  // namespace

std::vector<std::string> precision_lines(const CheckpointInfo& info) {
  const auto options = stored_options(info.config);
  const auto text_of = [&](const char* key) {
    const auto found = options.find(key);
    return found != options.end() ? found->second : std::string();
  };
  std::vector<std::string> lines;
  const std::string precision = text_of("precision");
  if (!precision.empty()) {
    lines.push_back("precision   " + precision);
  }
  const std::string scale = loss_scale_text(info, precision, text_of("loss_scale"));
  if (!scale.empty() || info.skipped_steps > 0) {
    lines.push_back(str("loss scale  ", scale.empty() ? "none" : scale, ", ", info.skipped_steps, " steps skipped"));
  }
  return lines;
}

}  // namespace vit_hybrid::train
