// PipelineRunner: the walk through a schedule, one engine call a micro-batch and stage, messages as planned.
#include "parallel/pipeline/runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <thread>
#include <utility>

#include "parallel/comm/operation.h"
#include "parallel/comm/statistics.h"
#include "parallel/pipeline/message_plan.h"
#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/trace.h"

namespace vit_hybrid::pipeline {

namespace {

// What forward leaves for backward. The edges keep the graph, and with it the input, alive.
struct Kept {
  torch::autograd::Edge input;
  torch::autograd::Edge output;
  std::vector<int64_t> output_shape;
  at::TensorOptions output_options;
};

// The result of an action on its way to another stage.
struct Passed {
  at::Tensor tensor;
  int exchange = -1;  // number of the exchange that brings it; -1: computed on this rank
};

// Host messages move only while both ends are inside MPI. A sender that went on computing at once would hold up a
// receiver that waits, for the length of its next action; so it stays as long as a slow link takes, at most.
constexpr double kSecondsPerByte = 2e-9;
constexpr double kSecondsToMeet = 5e-4;

constexpr const char* kNotThere = "the plan brings every message before its action";

}  // namespace

class PipelineRunner::Run {
 public:
  Run(PipelineRunner& runner, const Schedule& schedule, double loss_scale, const at::Tensor& loss)
      : runner_(runner),
        schedule_(schedule),
        loss_scale_(loss_scale),
        loss_(loss),
        trains_(has_backward(schedule)),
        stages_(static_cast<size_t>(schedule.num_stages), nullptr),
        kept_(schedule, std::nullopt),
        passed_(schedule, {}) {
    size_t local = 0;
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      if (schedule.rank_of_stage[stage] == runner.pipeline_.rank()) {
        VH_ASSERT(local < runner.stages_.size(), str("stage ", stage, " has no program on its rank"));
        stages_[stage] = runner.stages_[local++];
      }
    }
    VH_ASSERT(local == runner.stages_.size(), str(runner.stages_.size(), " programs for ", local, " stages"));
  }

  void walk(const std::vector<PlanStep>& steps) {
    const MemoryScope scope(MemoryClass::kActivations);
    const at::AutoGradMode grad_mode(trains_);
    for (const PlanStep& step : steps) {
      poll();
      if (const auto* group = std::get_if<MessageGroup>(&step)) {
        start(*group);
      } else if (const Action& action = std::get<Action>(step); action.kind == ActionKind::kForward) {
        forward(action);
      } else {
        backward(action);
      }
    }
    for (comm::Work& work : exchanges_) {
      work.wait();
    }
  }

 private:
  bool is_last(const Action& action) const { return action.stage == schedule_.num_stages - 1; }
  StageProgram& program(const Action& action) const { return *stages_[static_cast<size_t>(action.stage)]; }

  // Frees what has been sent; host messages move on only inside calls like this one.
  void poll() {
    while (first_open_ < exchanges_.size() && exchanges_[first_open_].test()) {
      ++first_open_;
    }
  }

  void start(const MessageGroup& group) {
    std::vector<comm::Transfer> transfers;
    size_t bytes_sent = 0;
    for (const Message& message : group) {
      const bool sends = message.direction == Message::Direction::kSend;
      at::Tensor tensor = sends ? std::exchange(passed_[message.product], {}).tensor : expect(message.product);
      VH_ASSERT(tensor.defined(), kNotThere);
      bytes_sent += sends ? tensor.nbytes() : 0;
      transfers.push_back({sends ? comm::Transfer::Direction::kSend : comm::Transfer::Direction::kReceive,
                           std::move(tensor), message.peer});
    }
    exchanges_.push_back(runner_.pipeline_.exchange(std::move(transfers)));
    if (bytes_sent > 0 && runner_.pipeline_.device_type() == at::kCPU) {
      hand_over(exchanges_.back(), static_cast<double>(bytes_sent) * kSecondsPerByte + kSecondsToMeet);
    }
  }

  void hand_over(comm::Work& exchange, double most_seconds) {
    const trace::Scope slice({.kind = trace::Kind::kWait, .name = "hand-over"});
    const double without_core = seconds_without_core();
    const Timer timer;
    while (!exchange.test() && timer.seconds() < most_seconds) {
      std::this_thread::yield();
    }
    comm::add_blocked_seconds(runner_.pipeline_.axis(),
                              {comm::run_position().phase, timer.seconds(), seconds_without_core() - without_core});
  }

  // Memory for a result of another rank.
  at::Tensor expect(const Action& product) {
    at::Tensor tensor;
    if (product.kind == ActionKind::kForward) {
      const StageProgram& consumer = *stages_[static_cast<size_t>(product.stage) + 1];
      const auto options = at::TensorOptions(consumer.activation_type()).device(runner_.pipeline_.device_type());
      tensor = at::empty(consumer.input_shape(product.micro_batch), options);
    } else {
      const auto& kept = kept_[{ActionKind::kForward, product.stage - 1, product.micro_batch}];
      VH_ASSERT(kept.has_value(), str("a gradient would arrive before the ", describe(product)));
      tensor = at::empty(kept->output_shape, kept->output_options);
    }
    passed_[product] = {tensor, static_cast<int>(exchanges_.size())};
    return tensor;
  }

  at::Tensor take(const Action& product) {
    Passed passed = std::exchange(passed_[product], {});
    VH_ASSERT(passed.tensor.defined(), kNotThere);
    if (passed.exchange >= 0) {
      exchanges_[static_cast<size_t>(passed.exchange)].wait();
      poll();  // what was sent meanwhile need not stay through an action
    }
    return std::move(passed.tensor);
  }

  void forward(const Action& action) {
    const auto [kind, stage, micro_batch] = action;
    at::Tensor input;
    if (stage > 0) {
      input = take({kind, stage - 1, micro_batch});
    }
    program(action).fetch(micro_batch);
    const auto timer = runner_.clock_.measure(runner_.times_.forward);
    const comm::PhaseScope phase("forward", micro_batch, stage);
    // The model's input too: parameters never require grad, so without it nothing would be recorded.
    input = (stage == 0 ? program(action).input(micro_batch) : input).detach().set_requires_grad(trains_);
    const at::Tensor output = program(action).forward(micro_batch, input);
    if (trains_) {
      VH_ASSERT(output.requires_grad(), str("the ", describe(action), " lost the graph"));
      kept_[action] = Kept{torch::autograd::impl::gradient_edge(input), torch::autograd::impl::gradient_edge(output),
                           output.sizes().vec(), output.options()};
    } else {
      program(action).release(micro_batch);
    }
    if (!is_last(action)) {
      passed_[action].tensor = output.detach().contiguous();
    } else if (loss_.defined()) {
      loss_.add_(output.detach());
    }
  }

  void backward(const Action& action) {
    const auto [kind, stage, micro_batch] = action;
    auto& slot = kept_[{ActionKind::kForward, stage, micro_batch}];
    at::Tensor gradient = is_last(action) ? at::full(slot->output_shape, loss_scale_, slot->output_options)
                                          : take({kind, stage + 1, micro_batch});
    const auto timer = runner_.clock_.measure(runner_.times_.backward);
    const comm::PhaseScope phase("backward", micro_batch, stage);
    const Kept kept = std::move(*slot);
    slot.reset();
    const at::Tensor of_input = backward_between(kept.output, std::move(gradient), kept.input);
    program(action).release(micro_batch);
    if (stage > 0) {
      VH_ASSERT(of_input.defined(), str("the ", describe(action), " gave no gradient of its input"));
      passed_[action].tensor = of_input.contiguous();
    }
  }

  PipelineRunner& runner_;
  const Schedule& schedule_;
  double loss_scale_;
  const at::Tensor& loss_;
  bool trains_;
  std::vector<StageProgram*> stages_;  // by global stage; null on other ranks
  ActionTable<std::optional<Kept>> kept_;
  ActionTable<Passed> passed_;
  std::vector<comm::Work> exchanges_;
  size_t first_open_ = 0;
};

PipelineRunner::PipelineRunner(comm::Communicator& pipeline, std::vector<StageProgram*> stages)
    : pipeline_(pipeline), stages_(std::move(stages)), clock_(pipeline.device_type()) {}

void PipelineRunner::run(const Schedule& schedule, double loss_scale, const at::Tensor& loss) {
  VH_ASSERT(schedule.num_ranks() == pipeline_.size(),
            str("a schedule for ", schedule.num_ranks(), " ranks on ", pipeline_.size()));
  clock_.collect();  // of a run that nobody asked the times of
  times_ = {};
  const auto plan = plan_messages(schedule);
  Run(*this, schedule, loss_scale, loss).walk(plan[static_cast<size_t>(pipeline_.rank())]);
}

const RunTimes& PipelineRunner::times() {
  clock_.collect();
  return times_;
}

}  // namespace vit_hybrid::pipeline
