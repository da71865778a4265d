// Calibration: the cases (a kernel or a message of one size), and how long a call of each takes.
#include "src/machine/calibration.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "data/hdf5/hdf5_writer.h"
#include "data/reading/posix_file.h"
#include "data/reading/row_source.h"
#include "model/vit_parameters.h"
#include "model/vit_stage.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/zero/rules/update_rule.h"
#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/shareable_tensor.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/kernels/attention/attend.h"
#include "src/kernels/dropout.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/matmul.h"
#include "src/kernels/layer_norm.h"

namespace vit_hybrid::train {

namespace {

using Points = std::vector<double>;

// One kind of work of one size. Calls are numbered, and take other tensors in turn.
struct Case {
  double work = 0.0;
  std::function<void(size_t call)> run;
  std::function<void(size_t call)> prepare = nullptr;  // what is not timed
  size_t most_calls = 1000;                            // that can be prepared at once
  bool counts = true;                                  // of this rank; else it only takes part
};

// ---- Timing. --------------------------------------------------------------------------------------------------------

double seconds_of(const Case& one, size_t first_call, size_t calls) {
  for (size_t call = first_call; one.prepare != nullptr && call < first_call + calls; ++call) {
    one.prepare(call);
  }
  const Timer timer;
  for (size_t call = first_call; call < first_call + calls; ++call) {
    one.run(call);
  }
  return timer.seconds() / static_cast<double>(calls);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of one call: the median of some rounds, in which all ranks do the same, and its mean over the ranks that count.
double measured_seconds(const Case& one, const comm::MpiGroup& world) {
  constexpr double kMicro = 1e6, kRoundSeconds = 0.004, kMostSeconds = 0.012;
  constexpr double kLong = 0.1;  // beside which what comes with a first call is little
  constexpr size_t kMostRounds = 3;
  const auto slowest = [&](double seconds) {
    return static_cast<double>(world.max(std::llround(kMicro * seconds))) / kMicro;
  };
  size_t call = 0;
  const auto round_of = [&](size_t calls) {
    world.barrier();
    const double seconds = comm::agreed(world, [&] { return seconds_of(one, call, calls); });
    call += calls;
    return seconds;
  };
  std::vector<double> times = {round_of(1)};  // starts threads, generates kernels
  if (slowest(times.front()) < kLong) times = {round_of(1)};
  const double once = std::max(slowest(times.front()), 1e-6);
  const auto calls = std::clamp<size_t>(static_cast<size_t>(kRoundSeconds / once), 1, one.most_calls);
  const double per_round = once * static_cast<double>(calls);
  const auto rounds = std::min<size_t>(static_cast<size_t>(kMostSeconds / per_round), kMostRounds);
  if (rounds > 0) times.clear();  // else one call takes long enough
  while (times.size() < std::max<size_t>(rounds, 1)) {
    times.push_back(round_of(calls));
  }
  std::vector<double> sum = one.counts ? std::vector{median(times), 1.0} : std::vector{0.0, 0.0};
  world.sum(sum);
  return sum[0] / sum[1];
}

// What else goes on in a machine, and its clock, change within seconds: all is measured several times, one thing after
// the other, and of each the median is taken.
constexpr int kSweeps = 3;

double median_of_sweeps(const std::function<double()>& measure) {
  std::vector<double> values;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    values.push_back(measure());
  }
  return median(values);
}

RateTables median_of_sweeps(const std::function<RateTables()>& measure) {
  std::vector<RateTables> sweeps;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    sweeps.push_back(measure());
  }
  RateTables medians = sweeps.front();
  for (auto& [kind, table] : medians) {
    for (size_t point = 0; point < table.rates.size(); ++point) {
      std::vector<double> rates;
      std::transform(sweeps.begin(), sweeps.end(), std::back_inserter(rates),
                     [&kind = kind, point](const RateTables& sweep) { return sweep.at(kind).rates[point]; });
      table.rates[point] = median(rates);
    }
  }
  return medians;
}

// All points of the grid of `axes`, the last axis fastest.
RateTable measured_table(std::vector<RateTable::Axis> axes, const std::function<Case(const Points&)>& make_case,
                         const comm::MpiGroup& world) {
  RateTable table{std::move(axes), {}, {}};
  Points sizes(table.axes.size());
  const std::function<void(size_t)> measure_from = [&](size_t axis) {
    if (axis == sizes.size()) {
      const Case one = comm::agreed(world, [&] { return make_case(sizes); });
      table.rates.push_back(one.work / measured_seconds(one, world));
      return;
    }
    for (const double point : table.axes[axis].points) {
      sizes[axis] = point;
      measure_from(axis + 1);
    }
  };
  measure_from(0);
  return table;
}

// ---- Tensors. -------------------------------------------------------------------------------------------------------

int64_t whole(double size) {
  return std::llround(size);
}

// Memory of which the cases take their tensors, by type: more than caches hold. Each table begins with the same
// numbers.
std::map<at::ScalarType, at::Tensor>& pools() {
  static std::map<at::ScalarType, at::Tensor> pools;
  return pools;
}

at::Tensor& pool(at::ScalarType type) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  at::Tensor& pool = pools()[type];
  if (!pool.defined()) {
    pool = at::full({kBytes / static_cast<int64_t>(at::elementSize(type))}, 0.37, type);  // any numbers will do
  }
  return pool;
}

// Neighbouring pieces of the pool, so many that the caches do not hold them, as those of a step they do not either.
std::vector<at::Tensor> filled(at::IntArrayRef sizes, at::ScalarType type, int64_t most = 64) {
  constexpr int64_t kBytes = int64_t{96} << 20;
  static int64_t next = 0;
  const at::Tensor& memory = pool(type);
  const int64_t elements = c10::multiply_integers(sizes),
                bytes = elements * static_cast<int64_t>(at::elementSize(type));
  VH_ASSERT(elements <= memory.numel(), "a case is larger than the pool");
  std::vector<at::Tensor> tensors(
      static_cast<size_t>(std::clamp<int64_t>(kBytes / std::max<int64_t>(bytes, 1), 2, most)));
  for (at::Tensor& tensor : tensors) {
    constexpr int64_t kAligned = 64;  // elements
    next = next + elements > memory.numel() ? 0 : next;
    tensor = memory.narrow(0, next, elements).view(sizes);
    next += (elements + kAligned - 1) / kAligned * kAligned;
  }
  return tensors;
}

const at::Tensor& in_turn(const std::vector<at::Tensor>& tensors, size_t call) {
  return tensors[call % tensors.size()];
}

// ---- Kernels. -------------------------------------------------------------------------------------------------------

// Each may have packed copies of its own.
constexpr int64_t kMostWeights = 16;

// One linear layer. Shared by what runs, which outlives this function's caller.
struct Layer {
  Layer(const Points& sizes, at::ScalarType type)
      : rows(whole(sizes[0])),
        inputs(whole(sizes[1])),
        outputs(whole(sizes[2])),
        x(filled({rows, inputs}, type)),
        dy(filled({rows, outputs}, type)),
        gradients(filled({outputs, inputs}, type == at::kDouble ? at::kDouble : at::kFloat)),
        bias(at::zeros({outputs}, type)),
        bias_gradient(at::zeros({outputs}, gradients.front().scalar_type())) {
    for (const at::Tensor& values : filled({outputs, inputs}, type, kMostWeights)) {
      weights.emplace_back(values);
    }
  }
  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(inputs) * static_cast<double>(outputs);
  }
  kernels::PackedWeight& weight(size_t call) { return weights[call % weights.size()]; }

  int64_t rows, inputs, outputs;
  std::vector<at::Tensor> x, dy, gradients;
  at::Tensor bias, bias_gradient;
  std::vector<kernels::PackedWeight> weights;
};

// With weights that are packed already: a step packs each once, for all its products. A product of some of the rows
// does that, of so many that it is computed as that of all.
using Multiply = std::function<void(const at::Tensor& rows, kernels::PackedWeight& weight)>;
Case packed_case(const std::shared_ptr<Layer>& layer, const std::vector<at::Tensor>& rows, const Multiply& multiply) {
  constexpr double kLargeFlops = 4e9;
  const int64_t some = layer->flops() < kLargeFlops ? layer->rows : layer->rows / 4;
  return {layer->flops(), [=](size_t call) { multiply(in_turn(rows, call), layer->weight(call)); },
          [=](size_t call) {
            if (call < layer->weights.size()) {
              multiply(in_turn(rows, call).narrow(0, 0, some), layer->weight(call));
            }
          }};
}

Case forward_case(const Points& sizes, at::ScalarType type) {
  const auto layer = std::make_shared<Layer>(sizes, type);
  return packed_case(layer, layer->x, [layer](const at::Tensor& x, kernels::PackedWeight& weight) {
    kernels::linear_forward(x, weight, 0, layer->bias);
  });
}

Case input_case(const Points& sizes, at::ScalarType type) {
  const auto layer = std::make_shared<Layer>(sizes, type);
  return packed_case(layer, layer->dy, [](const at::Tensor& dy, kernels::PackedWeight& weight) {
    kernels::linear_backward_input(dy, weight, 0);
  });
}

Case weight_case(const Points& sizes, at::ScalarType type) {
  const auto layer = std::make_shared<Layer>(sizes, type);
  return {layer->flops(), [layer](size_t call) {
            kernels::add_weight_gradient(in_turn(layer->gradients, call), in_turn(layer->dy, call),
                                         in_turn(layer->x, call), layer->bias_gradient);
          }};
}

// The copies of a weight for forward and backward, packed or of another type.
Case packing_case(const Points& sizes, at::ScalarType type) {
  const int64_t side = std::llround(std::sqrt(sizes[0]));
  const auto weights = std::make_shared<std::vector<kernels::PackedWeight>>();
  for (const at::Tensor& values : filled({side, side}, type, kMostWeights)) {
    weights->emplace_back(values);
  }
  const auto copy = [weights](size_t call, int64_t version) {
    kernels::copy_for_products((*weights)[call % weights->size()], version);
  };
  return {static_cast<double>(side * side), [copy](size_t call) { copy(call, static_cast<int64_t>(call) + 1); },
          [copy, most = weights->size()](size_t call) {  // a step finds their memory
            if (call < most) copy(call, 0);
          }};
}

bool packs(at::ScalarType type) {
  kernels::PackedWeight weight(at::zeros({1, 1}, type));
  return kernels::copy_for_products(weight, 0);
}

struct AttentionShape {
  static constexpr int64_t kHeads = 8, kTokens = 1024;  // at least

  explicit AttentionShape(const Points& sizes)
      : tokens(whole(sizes[0])), width(kHeads * whole(sizes[1])), samples(std::max<int64_t>(1, kTokens / tokens)) {}
  double flops() const {
    return 4.0 * static_cast<double>(samples) * static_cast<double>(tokens) * static_cast<double>(tokens) *
           static_cast<double>(width);
  }
  std::vector<at::Tensor> qkv(at::ScalarType type) const {
    auto tensors = filled({samples, tokens, 3 * width}, type);
    for (at::Tensor& tensor : tensors) {
      tensor = tensor.detach().set_requires_grad(true);
    }
    return tensors;
  }

  int64_t tokens, width, samples;
};

Case attention_forward_case(const Points& sizes, at::ScalarType type) {
  const AttentionShape shape(sizes);
  return {shape.flops(),
          [qkv = shape.qkv(type)](size_t call) { kernels::attend(in_turn(qkv, call), AttentionShape::kHeads, {}); }};
}

Case attention_backward_case(const Points& sizes, at::ScalarType type) {
  const AttentionShape shape(sizes);
  const auto qkv = std::make_shared<std::vector<at::Tensor>>(shape.qkv(type));
  const auto outputs = std::make_shared<std::vector<at::Tensor>>(qkv->size());
  const auto dy = filled({shape.samples, shape.tokens, shape.width}, type);
  using torch::autograd::impl::gradient_edge;
  return {2.0 * shape.flops(),
          [=](size_t call) {
            at::Tensor& output = (*outputs)[call % outputs->size()];
            backward_between(gradient_edge(output), in_turn(dy, call), gradient_edge(in_turn(*qkv, call)));
            output = at::Tensor();
          },
          [=](size_t call) {
            (*outputs)[call % outputs->size()] = kernels::attend(in_turn(*qkv, call), AttentionShape::kHeads, {});
          },
          qkv->size()};
}

// Rows of a usual width.
struct Rows {
  static constexpr int64_t kWidth = 512;
  explicit Rows(const Points& sizes) : rows(std::max<int64_t>(1, whole(sizes[0]) / kWidth)) {}
  double elements() const { return static_cast<double>(rows * kWidth); }
  std::vector<at::Tensor> values(at::ScalarType type) const { return filled({rows, kWidth}, type); }
  int64_t rows;
};

Case norm_forward_case(const Points& sizes, at::ScalarType type) {
  const Rows rows(sizes);
  const at::Tensor weight = at::full({Rows::kWidth}, 1.0, type), bias = at::zeros({Rows::kWidth}, type);
  return {rows.elements(), [=, residual = rows.values(type), branch = rows.values(type)](size_t call) {
            kernels::residual_layer_norm(in_turn(residual, call), in_turn(branch, call), {}, weight, bias, 1e-6);
          }};
}

Case norm_backward_case(const Points& sizes, at::ScalarType type) {
  const Rows rows(sizes);
  const at::Tensor weight = at::full({Rows::kWidth}, 1.0, type), bias = at::zeros({Rows::kWidth}, type);
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const kernels::NormGradients gradients{at::zeros({Rows::kWidth}, wide), at::zeros({Rows::kWidth}, wide)};
  const auto x = rows.values(type);
  const auto normed = kernels::layer_norm(x.front(), weight, bias, 1e-6);
  return {rows.elements(), [=, dy = rows.values(type), dx = rows.values(type)](size_t call) {
            kernels::layer_norm_backward(in_turn(dy, call), {in_turn(x, call), normed.mean, normed.rstd}, weight,
                                         in_turn(dx, call), gradients);
          }};
}

Case gelu_forward_case(const Points& sizes, at::ScalarType type) {
  const Rows rows(sizes);
  return {rows.elements(),
          [z = rows.values(type)](size_t call) { kernels::gelu(in_turn(z, call), kernels::GeluKind::kErf); }};
}

Case gelu_backward_case(const Points& sizes, at::ScalarType type) {
  const Rows rows(sizes);
  const at::Tensor bias_gradient = at::zeros({Rows::kWidth}, type == at::kDouble ? at::kDouble : at::kFloat);
  return {rows.elements(), [=, z = rows.values(type), dy = rows.values(type)](size_t call) {
            kernels::gelu_backward(in_turn(dy, call), in_turn(z, call), kernels::GeluKind::kErf, bias_gradient);
          }};
}

Case dropout_case(const Points& sizes, at::ScalarType type) {
  const Rows rows(sizes);
  SampleContext context;
  context.samples = {0};
  context.mode = Mode::kTraining;
  const kernels::DropKey key{0.1, 1, kernels::DropSite::kHidden};
  return {rows.elements(), [=, x = rows.values(type)](size_t call) {
            kernels::dropout(in_turn(x, call).unsqueeze(0), {0, Rows::kWidth}, Rows::kWidth, key, context);
          }};
}

// Bytes that are read and bytes that are written count.
Case stream_case(const Points& sizes, at::ScalarType /*type*/) {
  const int64_t elements = whole(sizes[0]) / static_cast<int64_t>(2 * sizeof(float));
  return {2.0 * sizeof(float) * static_cast<double>(elements),
          [from = filled({elements}, at::kFloat), to = filled({elements}, at::kFloat)](size_t call) {
            in_turn(to, call).copy_(in_turn(from, call));
          }};
}

Case optimizer_case(const Points& sizes, at::ScalarType type) {
  const Rows rows(sizes);
  zero::OptimizerOptions options;
  options.kind = zero::OptimizerKind::kAdamW;
  const std::shared_ptr<zero::UpdateRule> rule = zero::make_update_rule(options, at::kCPU);
  const at::ScalarType master = type == at::kDouble ? at::kDouble : at::kFloat;
  const auto flat = [&](at::ScalarType of) { return filled({rows.rows * Rows::kWidth}, of); };
  const auto weights = flat(master), gradients = flat(master), average = flat(master), squares = flat(master);
  const auto parameters = type == master ? std::vector<at::Tensor>{at::Tensor()} : flat(type);
  zero::StepScalars step = zero::scalars_of_step(options, 1, 1e-6);
  return {rows.elements(), [=](size_t call) {
            rule->apply({in_turn(weights, call),
                         in_turn(gradients, call),
                         {in_turn(average, call), in_turn(squares, call)},
                         in_turn(parameters, call)},
                        step, 0.01, 1.0);
          }};
}

using MakeCase = Case (*)(const Points& sizes, at::ScalarType type);
struct Measurement {
  const char* kind;
  MakeCase make_case;
  std::vector<RateTable::Axis> axes;
};

const std::vector<Measurement>& measurements() {
  const std::vector<RateTable::Axis> product = {
      {"rows", {32, 256, 1024}}, {"inputs", {96, 288, 864, 2592}}, {"outputs", {96, 288, 864, 2592}}};
  const std::vector<RateTable::Axis> attention = {{"tokens", {32, 128, 512, 1024}}, {"head_dim", {32, 64, 128}}};
  const std::vector<RateTable::Axis> elements = {{"elements", {1 << 13, 1 << 16, 1 << 19, 1 << 22}}};
  static const std::vector<Measurement> all = {
      {"product_forward", &forward_case, product},
      {"product_input", &input_case, product},
      {"product_weight", &weight_case, product},
      {"packing", &packing_case, elements},
      {"attention_forward", &attention_forward_case, attention},
      {"attention_backward", &attention_backward_case, attention},
      {"norm_forward", &norm_forward_case, elements},
      {"norm_backward", &norm_backward_case, elements},
      {"gelu_forward", &gelu_forward_case, elements},
      {"gelu_backward", &gelu_backward_case, elements},
      {"dropout", &dropout_case, elements},
      {"stream", &stream_case, {{"bytes", {1 << 15, 1 << 18, 1 << 21, 1 << 24}}}},
      {"optimizer", &optimizer_case, elements},
  };
  return all;
}

// ---- Messages. ------------------------------------------------------------------------------------------------------

at::Tensor floats(double bytes) {
  return at::zeros({whole(bytes) / static_cast<int64_t>(sizeof(float))}, at::kFloat);
}

// With both neighbours of a ring, `messages` times as many bytes each.
std::vector<comm::Transfer> ring_transfers(const comm::Communicator& group, double bytes, int messages) {
  using Direction = comm::Transfer::Direction;
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  std::vector<comm::Transfer> transfers;
  for (int i = 0; i < messages; ++i) {
    transfers.push_back({Direction::kSend, floats(bytes), next});
    transfers.push_back({Direction::kReceive, floats(bytes), previous});
  }
  return transfers;
}

Case exchange_case(comm::Communicator& group, double bytes, int messages = 1) {
  return {bytes, [&group, transfers = ring_transfers(group, bytes, messages)](size_t /*call*/) {
            group.exchange(transfers).wait();
          }};
}

// Whole sums as tensor ranks have them, of ordinary tensors; halves of them as replicas have gradients and parameters.
Case message_case(const std::string& kind, comm::Communicator& group, double bytes) {
  const double moved = bytes * bus_factor(kind, group.size());
  if (kind == "all_reduce") {
    return {moved, [&group, x = floats(bytes)](size_t /*call*/) { group.all_reduce(x, comm::ReduceOp::kSum).wait(); }};
  }
  const int64_t part = whole(bytes) / static_cast<int64_t>(sizeof(float)) / group.size();
  const at::Tensor all = shareable_zeros(part * group.size(), at::kFloat),
                   own = all.narrow(0, group.rank() * part, part);
  const auto run = [=, &group, scatters = kind == "reduce_scatter"](size_t /*call*/) {
    (scatters ? group.reduce_scatter(own, all, comm::ReduceOp::kSum) : group.all_gather(all, own)).wait();
  };
  const auto share = [=, &group](size_t call) {  // when all have their tensors
    if (call == 0) group.share(all);
  };
  return {moved, run, share};
}

double compute_from(double value, int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i) {
    value = value * 0.999999 + 1e-6;
  }
  return value;
}

// So many pieces of computing, each of about so many milliseconds, between which the rank looks after messages as it
// does between the operations of a layer; beside a gather of `bytes` unless that is 0.
Case computing_case(comm::Communicator& group, double bytes, int64_t pieces, int64_t milliseconds = 1) {
  constexpr int64_t kIterations = 250'000;  // of a millisecond
  const at::Tensor all = floats(std::max(bytes, 64.0)), part = floats(std::max(bytes, 64.0) / group.size());
  return {1.0, [=, &group](size_t /*call*/) {
            comm::Work work = bytes > 0.0 ? group.all_gather(all, part) : comm::Work();
            volatile double sink = 0.0;
            for (int64_t i = 0; i < pieces; ++i) {
              sink = compute_from(sink, milliseconds * kIterations);
              comm::progress();
            }
            work.wait();
          }};
}

// ---- Blocks. --------------------------------------------------------------------------------------------------------

// The blocks of a model on this rank alone, and a sample.
struct Blocks {
  Blocks(const model::VitOptions& model, at::ScalarType type, const comm::MpiGroup& world)
      : alone(comm::make_communicator("calibrated", world.split(world.rank()), at::kCPU, nullptr, {})),
        units{1, 1 + model.depth},
        buffer(model::parameter_specs(model, units, 0, 0, 1),
               tensor::make_flat_layout(model::parameter_specs(model, units, 0, 0, 1), kBucketElements, 1), type,
               type == at::kDouble ? at::kDouble : at::kFloat, at::kCPU),
        stage(model, units, buffer, *alone),
        x(at::full({1, model.num_tokens(), model.embed_dim}, 0.37, type).set_requires_grad(true)),
        dy(at::full_like(x, 0.37).detach()) {
    context.samples = {0};
    context.mode = Mode::kTraining;
  }
  void pass() {
    using torch::autograd::impl::gradient_edge;
    const at::Tensor y = stage.forward(x, context);
    backward_between(gradient_edge(y), dy, gradient_edge(x));
  }

  static constexpr int64_t kBucketElements = 1 << 20;
  std::unique_ptr<comm::Communicator> alone;
  Range units;
  tensor::ParameterBuffer buffer;
  model::VitStage stage;
  at::Tensor x, dy;
  tensor::StepContext context;
};

// ---- Reading. -------------------------------------------------------------------------------------------------------

std::vector<double> group_sizes(int ranks) {
  std::vector<double> sizes;
  for (int size = 2; size < 2 * ranks; size *= 2) {
    sizes.push_back(std::min(size, ranks));
  }
  return sizes;
}

RateTables measured_kernels(at::ScalarType type, const comm::MpiGroup& world) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  RateTables tables;
  for (const Measurement& one : measurements()) {
    if (std::string(one.kind) != "packing" || packs(type)) {
      for (auto& [of, memory] : pools()) {
        memory.fill_(0.37);
      }
      tables.emplace(one.kind, measured_table(
                                   one.axes, [&](const Points& sizes) { return one.make_case(sizes, type); }, world));
    }
  }
  pools().clear();
  return tables;
}

RateTables measured_messages(const comm::MpiGroup& world) {
  const MemoryScope scope(MemoryClass::kCommunication);
  const Points bytes = {1 << 12, 1 << 16, 1 << 20, 1 << 24};
  const comm::MpiGroup node = world.split_by_node();
  RateTables tables;
  if (world.min(node.size()) < 2) {
    return tables;
  }
  const Points sizes = group_sizes(static_cast<int>(world.min(node.size())));
  for (const WorkKind& kind : message_kinds()) {
    const bool is_exchange = std::string(kind.name) == "exchange";
    RateTable all{{}, {}, {}};
    for (const double size : is_exchange ? Points{sizes.back()} : sizes) {
      // Groups of consecutive ranks of the node; the last may be smaller, or one rank alone, which measures along.
      const auto group = comm::make_communicator("calibrated", node.split(node.rank() / static_cast<int>(size)),
                                                 at::kCPU, nullptr, {});
      const RateTable table = measured_table(
          {{"bytes", bytes}},
          [&](const Points& of) {
            Case one = is_exchange ? exchange_case(*group, of[0]) : message_case(kind.name, *group, of[0]);
            one.counts = group->size() == static_cast<int>(size);
            return one;
          },
          world);
      all.rates.insert(all.rates.end(), table.rates.begin(), table.rates.end());
    }
    if (!is_exchange) {
      all.axes.push_back({"ranks", sizes});
    }
    all.axes.push_back({"bytes", bytes});
    tables.emplace(kind.name, std::move(all));
  }
  return tables;
}

}  // namespace

RateTables calibrate_kernels(at::ScalarType type, const comm::MpiGroup& world) {
  return median_of_sweeps([&] { return measured_kernels(type, world); });
}

RateTables calibrate_messages(const comm::MpiGroup& world) {
  return median_of_sweeps([&] { return measured_messages(world); });
}

double calibrate_blocks(const model::VitOptions& model, at::ScalarType type, const comm::MpiGroup& world) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const auto blocks = std::make_shared<Blocks>(model, type, world);
  return median_of_sweeps([&] {
    return measured_seconds({1.0, [blocks](size_t /*call*/) { blocks->pass(); }}, world);
  });
}

double calibrate_reading(const std::string& folder, const comm::MpiGroup& world) {
  constexpr int64_t kValues = 1 << 20, kFewestRows = 4, kMostRows = 32, kMostOfAll = 1 << 14, kThreads = 2;
  constexpr double kRowBytes = sizeof(float) * kValues, kMicro = 1e6;
  const MemoryScope scope(MemoryClass::kData);
  const int64_t rows = std::clamp(kMostOfAll / world.size(), kFewestRows, kMostRows);
  const std::string name = world.broadcast(str("vit_hybrid-calibrate-", ::getpid(), ".h5"), 0);
  const std::string path = (std::filesystem::path(folder) / name).string();
  const std::shared_ptr<void> removed_at_end(nullptr, [&](void* /*none*/) {
    if (std::error_code ignored; world.rank() == 0) std::filesystem::remove(path, ignored);
  });
  {
    data::Hdf5Writer writer(world, path, {{.name = "fields", .shape = {rows * world.size(), kValues}}});
    comm::agreed(world, [&] {
      at::Tensor row = at::empty({1, kValues}, at::kFloat);
      for (int64_t i = rows * world.rank(); i < rows * (world.rank() + 1); ++i) {
        writer.write("fields", std::vector<int64_t>{i, 0}, row.fill_(static_cast<double>(i)));
      }
      writer.flush();
    });
    writer.finish();
  }
  comm::agreed(world, [&] { data::PosixFile(path, data::PosixFile::Access::kRead).forget_cached(); });
  const data::RowSource source(world, {path}, "fields", "", data::IoMode::kDirect);
  // Of the ranks half of all away, on another node where there are two.
  const int64_t first = rows * ((world.rank() + world.size() / 2) % world.size());
  const auto read_share = [&](int64_t thread) {
    std::vector<float> row(kValues);
    for (int64_t i = first + thread; i < first + rows; i += kThreads) {
      source.read({{0, i, row.data()}});
    }
  };
  world.barrier();
  const double seconds = comm::agreed(world, [&] {
    const Timer timer;
    auto other = std::async(std::launch::async, read_share, 1);
    read_share(0);
    other.get();
    return timer.seconds();
  });
  const double slowest = static_cast<double>(world.max(std::llround(kMicro * seconds))) / kMicro;
  return kRowBytes * static_cast<double>(rows) / std::max(slowest, 1.0 / kMicro);
}

NodeNetwork calibrate_nodes(const comm::MpiGroup& world) {
  const comm::MpiGroup node = world.split_by_node();
  const int ranks = node.size();
  if (world.min(ranks) != world.max(ranks) || ranks == world.size()) {
    return {};
  }
  constexpr double kFewBytes = 8.0, kManyBytes = 1 << 24, kMessages = 64.0;
  // The same rank of the first two nodes; the others stand aside.
  const int color = world.rank() / ranks < 2 ? node.rank() : ranks + world.rank();
  const auto pair = comm::make_communicator("calibrated", world.split(color), at::kCPU, nullptr, {});
  const auto seconds = [&](Case one) {
    one.counts = pair->size() == 2;
    return measured_seconds(one, world);
  };
  const double latency = seconds(exchange_case(*pair, kFewBytes));
  const double together = seconds(exchange_case(*pair, kFewBytes, static_cast<int>(kMessages)));
  const double many = seconds(exchange_case(*pair, kManyBytes));
  const double piece = seconds(computing_case(*pair, 0.0, 10)) / 10.0;
  const auto pieces = static_cast<int64_t>(std::ceil(1.5 * many / piece));
  const double alone = seconds(computing_case(*pair, 0.0, pieces));
  const double beside = seconds(computing_case(*pair, 2.0 * kManyBytes, pieces));  // of which each sends a half
  // What comes between two looks so far apart that the network could carry more: what is not hidden is waited for.
  constexpr int64_t kLooks = 8;
  constexpr double kLeast = 1e-6, kAll = 0.9;
  std::optional<double> look_bytes;
  const double gathering = seconds(computing_case(*pair, 2.0 * kManyBytes, 0));
  if (const auto apart = static_cast<int64_t>(gathering / (2.0 * kLooks * piece)); apart > 0) {
    const double computing = seconds(computing_case(*pair, 0.0, kLooks, apart));
    const double waited = seconds(computing_case(*pair, 2.0 * kManyBytes, kLooks, apart)) - computing;
    const double came = std::clamp(1.0 - waited / gathering, kLeast, 1.0);
    if (came < kAll * computing / gathering) look_bytes = came * kManyBytes / kLooks;
  }
  const double message = std::max(0.0, together - latency) / (2.0 * (kMessages - 1.0));  // is sent and received
  const double byte = std::max(0.0, beside - alone) / kManyBytes;
  return {ranks * kManyBytes / many, latency, message, byte, look_bytes, "measured between two nodes"};
}

}  // namespace vit_hybrid::train
