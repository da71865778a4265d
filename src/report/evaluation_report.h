// The figures of an evaluation for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "src/report/evaluation.h"
#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

/// Text at the right end of `width` characters.
std::string right_text(const std::string& text, size_t width);
/// 0 of no values.
double mean_of(const std::vector<double>& values);

/// Loss and samples, then a line for each channel with RMSE and ACC beside persistence and their means; or loss, top-1
/// and top-5.
std::vector<std::string> table_lines(const Evaluation& figures, const std::vector<std::string>& channels);

/// {"samples", "loss", "rmse": {channel: value}, "acc", "persistence_rmse", "persistence_acc"}, or top1 and top5.
Json to_json(const Evaluation& figures, const std::vector<std::string>& channels);

}  // namespace vit_hybrid::train
