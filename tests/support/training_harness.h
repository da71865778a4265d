// A few training steps of a small model in any layout, and their outcome gathered so that layouts can be compared.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/checkpoint/format.h"
#include "src/train/engine.h"
#include "src/train/saving/engine_state.h"

namespace vit_hybrid::testing {

using TensorsByName = std::map<std::string, at::Tensor>;

/// What is trained: a model, its optimizer, and the sizes of the global batches, one a step.
struct Experiment {
  std::string name;
  train::EngineOptions options;
  comm::TransportOptions transport;  ///< of the mesh
  int64_t micro_batch_size = 3;
  double learning_rate = 1e-2;        ///< of the first step
  double learning_rate_factor = 1.0;  ///< from each step to the next
  std::vector<int64_t> global_batches;
  model::FieldWeights loss_weights = {};  ///< of a forecast
  bool gathers_gradients = true;          ///< for the outcome, after each step
};

/// A layout of `dp * tp * pp` ranks.
struct Layout {
  int dp = 1;
  int tp = 1;
  int pp = 1;
  zero::ZeroStage zero = zero::ZeroStage::kOptimizerState;
  std::string schedule = "1f1b";
  std::string order = "tp-dp-pp";
  int shard = 0;  ///< ranks of dp that split the state among them; 0: all

  int num_ranks() const { return dp * tp * pp; }
  std::string text() const;
};

/// What one run gave. Tensors are whole, double, on the host; each rank has those of its own pipeline stage.
struct TrainingOutcome {
  int64_t first_step = 0;                       ///< the step of the vectors' first entries: not 0 after a resumption
  std::vector<double> losses;                   ///< global, by step, on every rank
  std::vector<double> grad_norms;               ///< by step
  std::vector<TensorsByName> gradients;         ///< by step, before clipping, without the loss scale
  std::vector<double> loss_scales;              ///< by step
  std::vector<bool> skipped;                    ///< by step
  TensorsByName parameters;                     ///< master weights after the last step
  bool parameters_are_cast = true;              ///< on this rank: parameters are the master weights in their type
  bool replicas_are_equal = true;               ///< all data ranks hold the same bits of the parameters
  std::map<std::string, TensorsByName> states;  ///< of the optimizer, by their names ("exp_avg")
};

bool equal(const TensorsByName& some, const TensorsByName& others);
/// Whether all has the same bits.
bool same(const TrainingOutcome& a, const TrainingOutcome& b);

/// What the steps of an engine change.
std::vector<at::Tensor> changed_tensors(train::Engine& engine);

/// A training in one layout that can be saved, and resumed in another. Everything is collective over `world`.
class Training {
 public:
  /// `experiment` and `world`, whose number of ranks the layout has, outlive it. Each rank computes on its `device`.
  Training(const Experiment& experiment, const Layout& layout, const comm::MpiGroup& world,
           c10::Device device = c10::Device(c10::kCPU));

  /// The next `count` steps; by default all that are left.
  void run_steps(int64_t count = -1);
  /// Through the program's own checkpoints.
  void save(const std::string& path);
  void load(const std::string& path);
  /// Of the whole state, as a checkpoint of it has them, by dataset.
  std::map<std::string, std::string> checksums();
  train::Engine& engine() { return engine_; }
  /// Of the weights as they are, and of the last step's gradient.
  std::vector<train::ParameterHistograms> histograms();
  /// What the steps of this training gave, and its state now.
  TrainingOutcome outcome();

 private:
  const Experiment& experiment_;
  Layout layout_;
  const comm::MpiGroup& world_;
  mesh::DeviceMesh mesh_;
  train::EngineOptions options_;
  train::Engine engine_;
  int64_t step_ = 0;
  TrainingOutcome outcome_;
};

/// All steps of an experiment, on the ranks of `world`. Collective over `world`.
TrainingOutcome run(const Experiment& experiment, const Layout& layout, const comm::MpiGroup& world,
                    c10::Device device = c10::Device(c10::kCPU));

/// The operations of this process, part by part of a test: by axis, number and bytes of each kind.
class OperationCounts {
 public:
  using Counts = std::map<std::string, std::vector<int64_t>>;

  OperationCounts() : until_now_(now()) {}
  /// Since it was made or last asked; those of axes that were used alone.
  Counts of_last_part();

 private:
  static Counts now();

  Counts until_now_;
};

/// Weights of a loss, of a forecaster's rows and channels, no two of them alike.
model::FieldWeights uneven_weights(const model::VitOptions& options);

/// The inputs and targets of some samples: keyed draws, functions of the sample numbers alone.
data::Batch make_batch(const model::VitOptions& options, const std::vector<int64_t>& samples);

/// The largest errors of `outcome` against `reference`, which holds all stages, by the measure of
/// tests/support/compare.
struct Errors {
  double loss = 0.0;
  double norm = 0.0;
  double gradient = 0.0;
  double parameter = 0.0;
  double state = 0.0;  ///< of the optimizer
  std::string worst;   ///< name of the tensor with the largest gradient error
};
Errors compare(const TrainingOutcome& outcome, const TrainingOutcome& reference, double learning_rate);

/// The checksums of the state of the whole mesh, as a checkpoint of it would have them: by dataset path, one for each
/// of the engine's state_groups() and each global tensor. Collective over `world`, the ranks of `mesh`.
train::Checksums state_checksums(train::Engine& engine, const model::VitOptions& options, const mesh::DeviceMesh& mesh,
                                 const comm::MpiGroup& world);

}  // namespace vit_hybrid::testing
