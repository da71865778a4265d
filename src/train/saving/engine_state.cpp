// Pieces of a rank's state: ranges that are owned, cut into boxes, as views. Histograms: each rank counts its share;
// what is added up is as long as the ranges of values make it.
#include "src/train/saving/engine_state.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "model/vit_parameters.h"
#include "parallel/comm/operation.h"
#include "src/base/memory_tracker.h"
#include "src/checkpoint/slice_reader.h"
#include "src/train/engine.h"

namespace vit_hybrid::train {

namespace {

std::vector<int64_t> row_major_strides(const tensor::Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * shape[d];
  }
  return strides;
}

// The box of a local slice, of which `flat` holds the elements from `first` on.
at::Tensor view_of(const at::Tensor& flat, int64_t first, const tensor::Shape& local, const tensor::BoxMapping& box) {
  const auto strides = row_major_strides(local);
  int64_t offset = flat.storage_offset() - first;
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += box.local_offset[d] * strides[d];
  }
  return at::as_strided(flat, box.size, strides, offset);
}

void add_pieces(const zero::OwnedState& state, const tensor::ParameterSpec& spec, std::vector<StatePiece>& out) {
  const int64_t first = state.range.begin;
  for (tensor::BoxMapping& box : boxes_of_range(spec, state.range)) {
    StatePiece piece{state.parameter, {}, {}};
    piece.values.push_back(view_of(state.master, first, spec.local_shape, box));
    for (const at::Tensor& flat : state.state) {
      piece.values.push_back(view_of(flat, first, spec.local_shape, box));
    }
    piece.box = std::move(box);
    out.push_back(std::move(piece));
  }
}

// The elements [part.begin, part.end) of an owned state, which has `part` among others.
zero::OwnedState cut(const zero::OwnedState& state, Range part) {
  const int64_t begin = part.begin - state.range.begin;
  zero::OwnedState out{state.parameter, part, state.master.narrow(0, begin, part.size()), {}};
  for (const at::Tensor& flat : state.state) {
    out.state.push_back(flat.narrow(0, begin, part.size()));
  }
  return out;
}

std::vector<StatePiece> pieces_of(const std::vector<zero::OwnedState>& states,
                                  const std::vector<tensor::ParameterSpec>& specs) {
  std::vector<StatePiece> pieces;
  for (const zero::OwnedState& state : states) {
    add_pieces(state, specs[static_cast<size_t>(state.parameter)], pieces);
  }
  return pieces;
}

}  // namespace

std::vector<std::string> state_groups(Engine& engine) {
  std::vector<std::string> groups = {kParametersGroup};
  for (const std::string& name : engine.optimizer().state_names()) {
    groups.push_back(dataset_path(kOptimizerGroup, name));
  }
  return groups;
}

std::vector<StatePiece> owned_pieces(Engine& engine) {
  return pieces_of(engine.optimizer().owned_state(), engine.parameters().specs());
}

std::vector<zero::OwnedState> written_state(Engine& engine, const mesh::DeviceMesh& mesh) {
  const auto& specs = engine.parameters().specs();
  const int num_shards = engine.parameters().layout().shards;
  const int num_owners = mesh.dims().data() / num_shards;  // of each element
  const int owner = mesh::on(mesh.coordinate(), mesh::Axis::kData) / num_shards;
  const bool is_first_of_tensor = mesh::on(mesh.coordinate(), mesh::Axis::kTensor) == 0;
  std::vector<zero::OwnedState> written;
  for (const zero::OwnedState& state : engine.optimizer().owned_state()) {
    const auto& spec = specs[static_cast<size_t>(state.parameter)];
    if (spec.replicated_over_tensor && !is_first_of_tensor) {
      continue;
    }
    const Range part = Partition(state.range.size(), num_owners).part(owner);
    written.push_back(cut(state, {state.range.begin + part.begin, state.range.begin + part.end}));
  }
  return written;
}

std::vector<StatePiece> written_pieces(Engine& engine, const mesh::DeviceMesh& mesh) {
  return pieces_of(written_state(engine, mesh), engine.parameters().specs());
}

std::vector<GlobalTensor> global_tensors(const model::VitOptions& options) {
  std::vector<GlobalTensor> out;
  for (tensor::ParameterSpec& spec : model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1)) {
    out.push_back({std::move(spec.name), std::move(spec.global_shape)});
  }
  return out;
}

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
