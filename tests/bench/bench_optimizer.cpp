// The optimizer's pass over a shard, and the gradient norm's, against the memory bandwidth of the same threads.
//
//   bench_optimizer [MILLIONS_OF_PARAMETERS [THREADS [ROUNDS]]]
//
// Prints, for each rule in fp32, and in bf16 with fp32 master weights, and for the norm of gradients in both,
// milliseconds, GB/s of what it must read and write, and the per cent of the rate at which the threads scale an array
// in place (read and write the same lines).
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "parallel/zero/norms.h"
#include "parallel/zero/rules/update_rule.h"
#include "src/base/timer.h"

using namespace vit_hybrid;

namespace {

template <class Run>
double best_seconds(int rounds, const Run& run) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round <= rounds; ++round) {  // the first touches the pages
    const Timer timer;
    run();
    best = std::min(best, timer.seconds());
  }
  return best;
}

double scale_rate(int64_t count, int rounds) {
  at::Tensor values = at::full({count}, 1.0F, at::kFloat);
  const double seconds = best_seconds(rounds, [&] { values.mul_(0.999F); });
  return 8.0 * static_cast<double>(count) / seconds;
}

void print(const std::string& name, bool is_half, double seconds, double bytes, double roof) {
  const double rate = bytes / seconds;
  std::printf("%-6s %-5s %8.2f ms %7.1f GB/s %6.1f %%\n", name.c_str(), is_half ? "bf16" : "fp32", seconds * 1e3,
              rate * 1e-9, 100.0 * rate / roof);
}

void measure_norm(at::ScalarType type, int64_t count, int rounds, double roof) {
  const at::Tensor gradients = at::full({count}, 1e-3F, type);
  double sum = 0.0;
  const double seconds = best_seconds(rounds, [&] { sum += zero::sum_of_squares(gradients); });
  print(sum > 0.0 ? "norm" : "?", type != at::kFloat, seconds, static_cast<double>(gradients.nbytes()), roof);
}

struct Pass {
  zero::OptimizerKind kind;
  at::ScalarType parameters;
};

void measure(const Pass& pass, int64_t count, int rounds, double roof) {
  zero::OptimizerOptions options;
  options.kind = pass.kind;
  const auto rule = zero::make_update_rule(options, at::kCPU);
  zero::UpdateTensors tensors;
  tensors.weights = at::full({count}, 0.5F, at::kFloat);
  tensors.gradients = at::full({count}, 1e-3F, at::kFloat);
  for (size_t i = 0; i < rule->state_names().size(); ++i) {
    tensors.state.push_back(at::zeros({count}, at::kFloat));
  }
  if (pass.parameters != at::kFloat) {
    tensors.parameters = at::zeros({count}, pass.parameters);
  }
  int64_t number = 0;
  const at::Tensor sums = at::zeros({2}, at::kDouble);
  const double seconds = best_seconds(rounds, [&] {
    const zero::StepScalars step = zero::scalars_of_step(options, ++number, 1e-3);
    if (rule->is_layerwise()) {
      rule->prepare(tensors, step, 0.01, sums);
    }
    rule->apply(tensors, step, 0.01, 1.0);
  });
  // Read: gradient, weight and state; written: weight, state and parameter. A layer-wise rule reads all once more.
  const auto num_states = static_cast<double>(tensors.state.size());
  double bytes = 4.0 * (1 + 2 + 2 * num_states) + (tensors.parameters.defined() ? 2.0 : 0.0);
  bytes += rule->is_layerwise() ? 4.0 * (2 + num_states) : 0.0;
  print(zero::optimizer_name(pass.kind), tensors.parameters.defined(), seconds, bytes * static_cast<double>(count),
        roof);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int value) { return argc > i ? std::atoi(argv[i]) : value; };
  const int64_t count = int64_t{argument(1, 64)} << 20;
  at::set_num_threads(argument(2, at::get_num_threads()));
  const int rounds = argument(3, 5);
  const double roof = scale_rate(count, rounds);
  std::printf("%lld Mi parameters, %d threads; an array is scaled in place at %.1f GB/s\n",
              static_cast<long long>(count >> 20), at::get_num_threads(), roof * 1e-9);
  for (const auto kind : {zero::OptimizerKind::kAdam, zero::OptimizerKind::kAdamW, zero::OptimizerKind::kSgd,
                          zero::OptimizerKind::kLamb, zero::OptimizerKind::kLars}) {
    for (const auto parameters : {at::kFloat, at::kBFloat16}) {
      measure({kind, parameters}, count, rounds, roof);
    }
  }
  measure_norm(at::kFloat, count, rounds, roof);
  measure_norm(at::kBFloat16, count, rounds, roof);
  return 0;
}
