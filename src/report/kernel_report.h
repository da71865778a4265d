// KernelReport: which kernels a run takes on this machine and why, in which types it counts, and what its dimensions
// cost; for the start of a run.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <utility>
#include <vector>

#include "src/config/run_config.h"
#include "src/report/metrics_log.h"
#include "src/report/padding_report.h"

namespace vit_hybrid::train {

struct KernelReport {
  std::vector<std::pair<std::string, std::string>> parts;  ///< ("attention", "blocked, ...")
  std::vector<PaddedDim> padded;

  /// One line a part, and one for each dimension that is padded.
  std::vector<std::string> lines() const;
};

/// Of this rank, whose device is `device`.
KernelReport report_kernels(const RunConfig& config, c10::Device device);

/// The same where a trained model is only used: what forward passes take, without dropout.
KernelReport report_kernels_of_use(const RunConfig& config, c10::Device device);

/// {"types": "...", "processor": "...", "products": ..., "padded_dimensions": [...]}
Json to_json(const KernelReport& report);

}  // namespace vit_hybrid::train
