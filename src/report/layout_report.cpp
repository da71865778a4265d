// LayoutReport: the arithmetic of imbalance.
#include "src/report/layout_report.h"

#include <algorithm>
#include <numeric>

#include "model/vit_memory.h"
#include "model/vit_options.h"
#include "parallel/pipeline/schedule.h"
#include "src/base/quantity_text.h"
#include "src/base/text.h"
#include "src/config/optimizer_options.h"

namespace vit_hybrid::train {

namespace {

std::string percent(double share) {
  return fixed_text(100.0 * share, 1) + " %";
}

double balance_of(const std::vector<double>& loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  const double largest = *std::max_element(loads.begin(), loads.end());
  return largest > 0.0 ? sum / (largest * static_cast<double>(loads.size())) : 1.0;
}

std::vector<int64_t> sizes(int64_t count, int parts) {
  std::vector<int64_t> result;
  for (int i = 0; i < parts; ++i) {
    result.push_back(Partition(count, parts).part(i).size());
  }
  return result;
}

AxisBalance data_balance(const RunConfig& config) {
  const auto samples = sizes(config.global_batch_size, config.parallel.dp);
  return {str("samples ", parts_text(samples), " of a step"), balance_of({samples.begin(), samples.end()})};
}

// FLOP of a block on each tensor rank: 8 N D^2 + 4 N^2 D go with the heads, 16 N D^2 (4 N D hidden) with the MLP.
AxisBalance tensor_balance(const RunConfig& config) {
  const model::VitOptions& model = config.model;
  const auto heads = sizes(model.num_heads, config.parallel.tp);
  const auto hidden = sizes(model.mlp_hidden, config.parallel.tp);
  const auto tokens = static_cast<double>(model.num_tokens());
  const auto dim = static_cast<double>(model.embed_dim);
  std::vector<double> loads;
  for (size_t i = 0; i < heads.size(); ++i) {
    const double share = static_cast<double>(heads[i]) / static_cast<double>(model.num_heads);
    loads.push_back(share * (8.0 * tokens * dim * dim + 4.0 * tokens * tokens * dim) +
                    4.0 * tokens * dim * static_cast<double>(hidden[i]));
  }
  return {str("heads ", parts_text(heads), ", MLP features ", parts_text(hidden)), balance_of(loads)};
}

// "embedding + blocks 0-2", "blocks 3-5 + head".
std::string units_text(Range units, int64_t depth) {
  std::vector<std::string> parts;
  if (units.begin == 0) {
    parts.push_back("embedding");
  }
  const int64_t first = std::max<int64_t>(units.begin, 1) - 1;
  const int64_t last = std::min(units.end, depth + 1) - 2;
  if (first == last) {
    parts.push_back(str("block ", first));
  } else if (first < last) {
    parts.push_back(str("blocks ", first, "-", last));
  }
  if (units.end == depth + 2) {
    parts.push_back("head");
  }
  return join(parts, " + ");
}

// Of more than eight stages the first and the last, which hold other things than blocks, and how many blocks the others
// have.
std::string stages_text(const std::vector<std::string>& texts, const std::vector<Range>& stages) {
  constexpr size_t kMostListed = 8;
  if (stages.size() <= kMostListed) {
    return join(texts, " | ");
  }
  std::vector<int64_t> inner;
  for (size_t i = 1; i + 1 < stages.size(); ++i) {
    inner.push_back(stages[i].size());
  }
  return str(texts.front(), " | stages of ", parts_text(inner), " blocks | ", texts.back());
}

AxisBalance pipeline_balance(const RunConfig& config, const std::vector<Range>& stages) {
  const auto costs = model::unit_costs(config.model);
  std::vector<double> loads;
  std::vector<std::string> texts;
  for (const Range& units : stages) {
    loads.push_back(std::accumulate(costs.begin() + units.begin, costs.begin() + units.end, 0.0));
    texts.push_back(units_text(units, config.model.depth));
  }
  return {stages_text(texts, stages), balance_of(loads)};
}

const char* recompute_name(model::Recompute recompute) {
  switch (recompute) {
    case model::Recompute::kNone:
      return "none";
    case model::Recompute::kSelective:
      return "selective";
    case model::Recompute::kFull:
      return "full";
  }
  return "";
}

// Of the stage that has most, by the formula.
int64_t most_activations(const RunConfig& config, const std::vector<Range>& stages,
                         const pipeline::ScheduleReport& schedule) {
  int64_t most = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const model::HeldMicroBatches held{schedule.peak_in_flight[stage], schedule.peak_received_early[stage]};
    most = std::max(
        most, model::activation_bytes(config.model, stages[stage], config.parallel.tp, config.parallel.micro_batch_size,
                                      config.recompute, precision_policy(config).compute, held));
  }
  return most;
}

}  // namespace

double LayoutReport::efficiency() const {
  return data.balance * tensor.balance * pipeline.balance * (1.0 - bubble);
}

std::vector<std::string> LayoutReport::lines() const {
  return {
      str("  data      ", data.text, ": balance ", percent(data.balance)),
      str("  tensor    ", tensor.text, ": balance ", percent(tensor.balance)),
      str("  pipeline  ", pipeline.text, ": balance ", percent(pipeline.balance)),
      str("  schedule  ", num_micro_batches, " micro-batches, bubble ", percent(bubble)),
      str("  memory    activations of about ", bytes_text(activation_bytes), " a rank (--recompute ", recompute, ")"),
      str("  the layout leaves at most ", percent(efficiency()), " of the ranks' speed")};
}

LayoutReport report_layout(const RunConfig& config, const std::vector<Range>& stages) {
  LayoutReport report;
  report.data = data_balance(config);
  report.tensor = tensor_balance(config);
  report.pipeline = pipeline_balance(config, stages);
  report.num_micro_batches = config.num_micro_batches();
  const auto schedule = pipeline::make_schedule(config.parallel.schedule, config.parallel.pp, report.num_micro_batches);
  const auto check = pipeline::check_schedule(schedule);
  report.bubble = check.bubble_fraction;
  report.recompute = recompute_name(config.recompute);
  report.activation_bytes = most_activations(config, stages, check);
  return report;
}

}  // namespace vit_hybrid::train
