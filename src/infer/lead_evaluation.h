// evaluate_leads(): the scores of a model's forecasts by lead, over all starts of a data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/config/run_config.h"
#include "src/infer/model_use.h"
#include "src/report/lead_scores.h"

namespace vit_hybrid::train {

struct LeadOptions {
  std::string hours;                          ///< of the leads, with commas between them
  std::string steps;                          ///< the same in applications of the model; empty both: one
  ScoreRules rules = ScoreRules::kReference;  ///< --scores
  std::string climatology;                    ///< path of Climatology
  bool are_asked() const { return !hours.empty() || !steps.empty() || rules != ScoreRules::kReference; }
};

/// What of the options no forecasts can be scored with: Error(kUsage). Pure.
void check_leads(const model::VitOptions& model, const data::FieldRoles& roles, const LeadOptions& options);

/// Forecasts from every time of config.data.valid_data (the first limit_nsamples_val) that has the states before it
/// and a truth at the first lead, each as far as the truth goes; prints tables and, where use.out is given, writes them
/// as JSON, or NetCDF-4 for a name that ends with .nc. Replicas share the starts. The figures, on all ranks. `config`
/// as from config_for_use(). Collective over `world`, errors agreed.
std::vector<LeadFigures> evaluate_leads(const RunConfig& config, const ModelUse& use, const LeadOptions& options,
                                        const CheckpointReader& checkpoint, const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
