// Histograms of parameters: each rank counts its share; what is added up is as long as the ranges of values make it.
#include "src/train/parameter_histograms.h"
#include "src/train/saving/engine_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <string>

#include "parallel/comm/operation.h"
#include "src/base/memory_tracker.h"
#include "src/train/engine.h"

namespace vit_hybrid::train {

namespace {

// Of this rank's share, for each parameter of the model.
std::vector<ParameterHistograms> count_share(Engine& engine, const model::VitOptions& model,
                                             const mesh::DeviceMesh& mesh, double loss_scale) {
  std::vector<ParameterHistograms> all;
  std::map<std::string, size_t> place;
  for (GlobalTensor& tensor : global_tensors(model)) {
    place[tensor.name] = all.size();
    all.push_back({std::move(tensor.name), {}, {}});
  }
  const tensor::ParameterBuffer& buffer = engine.parameters();
  for (const zero::OwnedState& state : written_state(engine, mesh)) {
    const auto parameter = static_cast<size_t>(state.parameter);
    ParameterHistograms& histograms = all[place.at(buffer.specs()[parameter].name)];
    const int64_t begin = buffer.layout().slots[parameter].begin + state.range.begin;
    count(state.master, 1.0, histograms.weights);
    count(buffer.gradients().narrow(0, begin, state.range.size()), 1.0 / loss_scale, histograms.gradient);
  }
  return all;
}

// In the order in which their numbers lie in messages.
std::vector<Histogram*> each_of(std::vector<ParameterHistograms>& parameters) {
  std::vector<Histogram*> all;
  for (ParameterHistograms& histograms : parameters) {
    all.push_back(&histograms.weights);
    all.push_back(&histograms.gradient);
  }
  return all;
}

void reduce_ends(const std::vector<Histogram*>& histograms, comm::Communicator& world) {
  const at::Tensor ends = at::empty({static_cast<int64_t>(2 * histograms.size())}, at::kDouble);
  auto* end = ends.mutable_data_ptr<double>();
  for (const Histogram* histogram : histograms) {
    *end++ = -histogram->least;
    *end++ = histogram->most;
  }
  world.all_reduce(ends, comm::ReduceOp::kMax).wait();
  end = ends.mutable_data_ptr<double>();
  for (Histogram* histogram : histograms) {
    histogram->least = -*end++;
    histogram->most = *end++;
  }
}

// The buckets from the first to behind the last that have something on some rank; after reduce_ends().
Range filled_buckets(const Histogram& histogram) {
  if (histogram.least > histogram.most) {
    return {0, 0};  // nothing is finite
  }
  return {static_cast<int64_t>(bucket_of(histogram.least)), static_cast<int64_t>(bucket_of(histogram.most)) + 1};
}

void reduce_sums(const std::vector<Histogram*>& histograms, comm::Communicator& world) {
  int64_t size = 0;
  for (const Histogram* histogram : histograms) {
    size += 3 + filled_buckets(*histogram).size();
  }
  const at::Tensor sums = at::empty({size}, at::kDouble);  // counts are exact in it, to 2^53
  auto* sum = sums.mutable_data_ptr<double>();
  for (const Histogram* histogram : histograms) {
    *sum++ = histogram->sum;
    *sum++ = histogram->sum_of_squares;
    *sum++ = static_cast<double>(histogram->not_finite);
    const Range filled = filled_buckets(*histogram);
    sum = std::copy(histogram->counts.begin() + filled.begin, histogram->counts.begin() + filled.end, sum);
  }
  world.all_reduce(sums, comm::ReduceOp::kSum).wait();
  sum = sums.mutable_data_ptr<double>();
  for (Histogram* histogram : histograms) {
    histogram->sum = *sum++;
    histogram->sum_of_squares = *sum++;
    histogram->not_finite = static_cast<int64_t>(*sum++);
    const Range filled = filled_buckets(*histogram);
    std::copy(sum, sum + filled.size(), histogram->counts.begin() + filled.begin);
    sum += filled.size();
  }
}

}  // namespace

std::vector<ParameterHistograms> parameter_histograms(Engine& engine, const model::VitOptions& model,
                                                      mesh::DeviceMesh& mesh, double loss_scale) {
  const comm::PhaseScope phase("histograms");
  std::vector<ParameterHistograms> parameters = count_share(engine, model, mesh, loss_scale);
  const std::vector<Histogram*> histograms = each_of(parameters);
  const MemoryScope scope(MemoryClass::kCommunication);
  reduce_ends(histograms, mesh.host_world());
  reduce_sums(histograms, mesh.host_world());
  return parameters;
}

}  // namespace vit_hybrid::train
