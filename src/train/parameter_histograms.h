// Histograms of all parameters and gradients of the model, of which each rank holds a part.
#pragma once

#include <vector>

#include "parallel/mesh/device_mesh.h"
#include "src/report/histogram.h"
#include "src/train/engine.h"

namespace vit_hybrid::train {

/// Of the master weights as they are after the last step, and of that step's gradient: reduced, before clipping,
/// without `loss_scale`, by which it is divided. In forward order, on all ranks; each element of each global tensor is
/// counted once, so that counts, least and most are those of one process with these values, and the sums are so up to
/// rounding. Two reductions for all of them. Collective over the world.
std::vector<ParameterHistograms> parameter_histograms(Engine& engine, const model::VitOptions& model,
                                                      mesh::DeviceMesh& mesh, double loss_scale);

}  // namespace vit_hybrid::train
