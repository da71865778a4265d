// TimePlan: kernels and messages put together as a step does it.
#include "src/plan/time_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "parallel/comm/nodes/node_link.h"
#include "parallel/mesh/device_mesh.h"
#include "parallel/pipeline/message_plan.h"
#include "parallel/tensor/step_context.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/machine/device.h"
#include "src/plan/step_work.h"

namespace vit_hybrid::train {

namespace {

using mesh::Group;

// Ranks of so many threads that compute on a node at one time: no more than its cores have room for.
int ranks_at_once(const MachineFile& machine, int ranks_per_node, int threads) {
  return std::min(ranks_per_node, std::max(1, machine.cores / threads));
}

// Whose rates are taken.
const Population& population_of(const MachineFile& machine, int ranks_per_node, int threads) {
  return machine.nearest(ranks_at_once(machine, ranks_per_node, threads), threads);
}

// Between the ranks of a node: of a population that was measured with several, where this one was not.
const RateTables& messages_of(const MachineFile& machine, const Population& population) {
  const auto known = std::find_if(machine.populations.begin(), machine.populations.end(),
                                  [](const Population& one) { return !one.messages.empty(); });
  return population.messages.empty() && known != machine.populations.end() ? known->messages : population.messages;
}

// How long a collective takes, and how much of that computing hides which goes on meanwhile.
struct CollectiveTime {
  double seconds = 0.0;
  double hideable = 0.0;
  double rounds = 0.0;  // in which it goes, where ranks must begin each of them
  double look_s = 0.0;  // of that, what comes between two looks takes at most; 0: no less than between the looks

  CollectiveTime& operator+=(const CollectiveTime& other) {
    seconds += other.seconds;
    hideable += other.hideable;
    rounds += other.rounds;
    look_s = std::max(look_s, other.look_s);
    return *this;
  }
};

// How long messages take where nodes hold some consecutive ranks.
class Network {
 public:
  // `has_thread`: another core moves the messages between nodes.
  Network(const ParallelConfig& parallel, const MachineFile& machine, const Population& population, int ranks_per_node,
          bool has_thread)
      : between_(machine.between_nodes),
        messages_(messages_of(machine, population)),
        transport_(transport_options(parallel)),
        is_host_(machine.device == "cpu"),
        has_thread_(has_thread) {
    const mesh::ParallelDims dims = parallel_dims(parallel);
    for (const Group group : mesh::kGroups) {
      const auto members = dims.members(0, group);
      std::map<int, int> on_node;
      for (const int rank : members) {
        ++on_node[rank / ranks_per_node];
      }
      Spread& spread = spreads_[static_cast<size_t>(group)];
      spread.ranks = static_cast<int>(members.size());
      spread.nodes = static_cast<int>(on_node.size());
      spread.per_node = on_node.begin()->second;
      spread.groups = std::max(1, std::min(ranks_per_node, dims.size()) / spread.per_node);
    }
  }

  // A collective of `bytes` bytes; nothing for a group of one.
  CollectiveTime collective(const std::string& kind, Group group, double bytes) const {
    const Spread& spread = spreads_[static_cast<size_t>(group)];
    if (spread.ranks == 1 || bytes <= 0.0) {
      return {};
    }
    const double on_node = spread.per_node > 1 ? on_one_node(kind, group, bytes) : 0.0;
    // Each node sends and receives its part once, and all groups of a node at the same time.
    const double crossing = spread.nodes > 1 ? bytes * bus_factor(kind, spread.nodes) * spread.groups / rate() : 0.0;
    if (!is_host_) {
      const double seconds = on_node + crossing + between_.latency_s * std::ceil(std::log2(spread.nodes));
      return {seconds, seconds, 0.0};
    }
    return spread.nodes > 1 ? over_nodes(kind, spread, bytes, on_node, crossing) : CollectiveTime{on_node, 0.0, 0.0};
  }

  // From a stage to the next one.
  double message(double bytes) const {
    const Spread& spread = spreads_[static_cast<size_t>(Group::kPipeline)];
    if (spread.ranks == 1) {
      return 0.0;
    }
    return spread.per_node > 1 ? within("exchange", 2, bytes) : bytes * spread.groups / rate() + between_.latency_s;
  }

 private:
  struct Spread {
    int ranks = 1;     // of a group
    int nodes = 1;     // that it spans
    int per_node = 1;  // of its ranks
    int groups = 1;    // on a node
  };

  // On CPUs replicas add up gradients where they lie, as the halves of a sum do. What tensor ranks add up goes through
  // slots, and so does what is gathered from several nodes: at the rate of such a sum, of which it is a half.
  double on_one_node(const std::string& kind, Group group, double bytes) const {
    const Spread& spread = spreads_[static_cast<size_t>(group)];
    const auto of = [&](const std::string& table) { return within(table, spread.per_node, bytes); };
    if (!is_host_ || group == Group::kTensor) return of(kind);
    const double gathered = spread.nodes > 1 ? of("all_reduce") / 2.0 : of("all_gather");
    if (kind == "all_gather") return gathered;
    return kind == "all_reduce" ? of("reduce_scatter") + gathered : of(kind);
  }
  double within(const std::string& kind, int ranks, double bytes) const {
    const auto table = messages_.find(kind);
    if (table == messages_.end() || bytes <= 0.0) {
      return 0.0;
    }
    // Below the shortest message that was measured it is the message that costs, not its bytes.
    const double measured = std::max(bytes, table->second.axes.back().points.front());
    const std::vector<double> sizes =
        kind == "exchange" ? std::vector{measured} : std::vector{static_cast<double>(ranks), measured};
    return measured * bus_factor(kind, ranks) / table->second.at(sizes);
  }
  double rate() const {
    return between_.bytes_per_s > 0.0 ? between_.bytes_per_s : std::numeric_limits<double>::infinity();
  }

  // The rounds of parallel/comm/nodes: ranks fold, and begin, move and end messages themselves, which is never hidden;
  // of the rounds in flight one is folded while another is on its way.
  CollectiveTime over_nodes(const std::string& kind, const Spread& spread, double bytes, double on_node,
                            double crossing) const {
    const comm::NodeSteps steps(spread.nodes, transport_.most_nodes_in_one_step);
    const int halves = kind == "all_reduce" ? 2 : 1;
    const double rounds = std::ceil(bytes / static_cast<double>(transport_.slot_bytes_between_nodes));
    const double messages = rounds * halves * 2.0 * steps.messages() * between_.message_s;
    const double moved = bytes * bus_factor(kind, spread.nodes) * between_.byte_s.value_or(0.0);
    const double own = on_node + (has_thread_ ? 0.0 : (messages + moved) / spread.per_node);
    const double in_a_row = halves * steps.count() * between_.latency_s;
    const double on_way = std::max(crossing, std::ceil(rounds / comm::SharedSlots::kNumSlots) * in_a_row) + in_a_row;
    if (!between_.byte_s && !has_thread_) {
      return {own + on_way, 0.0, 0.0};
    }
    const double seconds = std::max(own, on_way) + std::min(own, on_way) / rounds;
    const double look_s =
        has_thread_ ? 0.0 : between_.look_bytes.value_or(0.0) * spread.per_node * spread.groups / rate();
    return {seconds, seconds - own, rounds * halves * steps.count(), look_s};
  }

  const NodeNetwork& between_;
  const RateTables& messages_;
  comm::TransportOptions transport_;
  bool is_host_;
  bool has_thread_;
  std::array<Spread, mesh::kNumGroups> spreads_;
};

// Of one stage.
struct StageTime {
  std::vector<double> forward, backward;  // by micro-batch
  double messages = 0.0;                  // of the seconds of all of them
  double forward_looks = 0.0;             // after messages, in each forward: as many as layers have operations
  double backward_looks = 0.0;
  double reduce = 0.0;
  double optimizer = 0.0;
};

class StepTime {
 public:
  StepTime(const StepConfig& config, const DataConfig& data, const MachineFile& machine, int ranks_per_node,
           int threads)
      : config_(config),
        data_(data),
        device_(machine.device == "cuda" ? c10::DeviceType::CUDA : c10::DeviceType::CPU),
        ranks_per_node_(std::min(ranks_per_node, config.parallel.dp * config.parallel.model_size())),
        population_(population_of(machine, ranks_per_node_, threads)),
        tables_(population_.types.at(precision_name(config.precision.kind))),
        sharing_(device_ == c10::DeviceType::CPU ? static_cast<double>(ranks_per_node_) * threads / machine.cores
                                                 : 1.0),
        network_(config.parallel, machine, population_, ranks_per_node_,
                 config.parallel.communication_thread && ranks_per_node_ * (threads + 1) <= machine.cores),
        policy_(precision_policy(config.precision)),
        replica_(plan_replica(config, config.parallel.dp - 1)) {}

  TimePlan plan() const {
    std::vector<StageTime> stages;
    for (int stage = 0; stage < config_.parallel.pp; ++stage) {
      const int alike = first_alike(replica_.stages, stage);
      stages.push_back(alike < stage ? stages[static_cast<size_t>(alike)] : stage_time(stage));
    }
    return together(stages);
  }

 private:
  Range units(int stage) const { return replica_.stages[static_cast<size_t>(stage)]; }
  model::TensorPlace tensor() const { return {config_.parallel.tp - 1, config_.parallel.tp}; }

  StageTime stage_time(int stage) const {
    StageTime time;
    const Partition micro_batches(replica_.samples, std::max(replica_.micro_batches, 1));
    std::map<int64_t, Passes> of_size;
    for (int i = 0; i < replica_.micro_batches; ++i) {
      const int64_t samples = micro_batches.part(i).size();
      if (!of_size.contains(samples)) {
        of_size[samples] = passes(stage, samples);
      }
      const Passes& of = of_size[samples];
      time.forward.push_back(of.forward.seconds + of.forward.messages);
      time.backward.push_back(of.backward.seconds + of.backward.messages);
      time.messages += of.forward.messages + of.backward.messages;
      time.forward_looks = of.forward.operations;
      time.backward_looks = of.backward.operations;
    }
    add_update(stage, time);
    return time;
  }

  // A micro-batch's way through a stage. Its parts (--tp-overlap) take turns: a sum of one in forward goes beside a
  // sublayer of the other, but for the stage's last. Backward's go beside weight gradients, those of a block that is
  // computed again beside nothing.
  struct Pass {
    double seconds = 0.0;   // of its kernels
    double messages = 0.0;  // that nothing hides
    double operations = 0.0;
  };
  struct Passes {
    Pass forward, backward;
  };
  Passes passes(int stage, int64_t samples) const {
    const double sums = 2.0 * static_cast<double>(model::num_blocks(config_.model, units(stage)));  // of a pass
    const bool again = config_.recompute == model::Recompute::kFull;
    Passes out;
    std::vector<std::pair<double, double>> turns;  // of each part, a sublayer and what of a sum may go beside one
    const Partition parts = tensor::parts_of(samples, config_.parallel.micro_batch_parts());
    for (int i = 0; i < parts.parts(); ++i) {
      const PassWork work = pass_work(config_.model, config_.recompute, units(stage), tensor(), parts.part(i).size());
      const double forward = seconds_of(work.forward, tables_) + population_.operation_s * work.forward_operations;
      out.forward.seconds += forward;
      out.backward.seconds += seconds_of(work.backward, tables_) + population_.operation_s * work.backward_operations;
      out.forward.operations += work.forward_operations;
      out.backward.operations += work.backward_operations;
      const CollectiveTime sum = tensor_sum(parts.part(i).size());
      out.forward.messages += sums * sum.seconds;
      out.backward.messages += (again ? 2.0 : 1.0) * sums * sum.seconds;
      for (const KernelWork& beside : work.beside_sums) {
        out.backward.messages -= std::min(sum.hideable, seconds_of({beside}, tables_));
      }
      turns.emplace_back(forward / std::max(sums, 1.0), sum.hideable);
    }
    if (turns.size() > 1 && sums > 0.0) {
      out.forward.messages -=
          sums * std::min(turns[0].second, turns[1].first) + (sums - 1.0) * std::min(turns[1].second, turns[0].first);
    }
    return out;
  }

  // Of one sublayer's activation over the tensor axis. On the host it moves between layers only, where nothing hides
  // it.
  CollectiveTime tensor_sum(int64_t samples) const {
    const int64_t elements = samples * config_.model.num_tokens() * config_.model.embed_dim;
    CollectiveTime sum =
        network_.collective("all_reduce", Group::kTensor, static_cast<double>(elements * size_of(policy_.compute)));
    sum.hideable = device_ == c10::DeviceType::CUDA ? sum.hideable : 0.0;
    return sum;
  }

  // Who split the optimizer's state.
  Group shard_group() const { return parallel_dims(config_.parallel).cuts_data() ? Group::kShard : Group::kData; }

  // Of a bucket of gradients.
  CollectiveTime reduction_of(double bytes) const {
    const int shards = config_.parallel.state_shards();
    if (shards == 1) {
      return network_.collective("all_reduce", Group::kData, bytes);
    }
    CollectiveTime time = network_.collective("reduce_scatter", shard_group(), bytes);
    if (shard_group() == Group::kShard) {
      time += network_.collective("all_reduce", Group::kReplica, bytes / shards);
    }
    return time;
  }

  // What is left of `buckets` collectives beside `seconds` of other work, in which a rank looks after the messages
  // `looks` times: the rounds in flight stand still until it looks, for their begin and for the answer that a message
  // waits for, and what comes between two looks is limited. The last bucket comes when all else is done.
  static double exposed(const CollectiveTime& of_bucket, double buckets, double seconds, double looks) {
    constexpr double kLooksOfRound = 2.0;
    const double hideable = buckets * of_bucket.hideable;
    if (hideable == 0.0 || seconds == 0.0) {
      return buckets * of_bucket.seconds;
    }
    const double waits = buckets * of_bucket.rounds / comm::SharedSlots::kNumSlots * kLooksOfRound;
    const double between_looks = seconds / std::max(looks, 1.0);
    const double share = of_bucket.look_s > 0.0 ? std::min(1.0, of_bucket.look_s / between_looks) : 1.0;
    const double beside = hideable / share + waits * between_looks;
    const double hidden = hideable * std::min(1.0, seconds / beside) * (buckets - 1.0) / buckets;
    return buckets * of_bucket.seconds - hidden;
  }

  void add_update(int stage, StageTime& time) const {
    const auto flat = plan_flat_layout(config_, replica_, {stage, config_.parallel.tp - 1}, device_);
    const UpdateWork work = update_work(config_.model, units(stage), tensor(), flat.size, flat.size / flat.shards);
    if (!time.forward.empty()) {
      time.forward.front() += seconds_of(work.packing, tables_);
    }
    const double buckets = std::max<double>(1.0, static_cast<double>(flat.buckets.size()));
    const double of_bucket = static_cast<double>(flat.size) / buckets;
    const CollectiveTime reduction = reduction_of(of_bucket * static_cast<double>(size_of(policy_.reduce)));
    const CollectiveTime gathering =
        flat.shards > 1 ? network_.collective("all_gather", shard_group(),
                                              of_bucket * static_cast<double>(size_of(policy_.compute)))
                        : CollectiveTime{};
    time.reduce = exposed(reduction, buckets, time.backward.empty() ? 0.0 : time.backward.back(), time.backward_looks) +
                  seconds_of(work.norm, tables_);
    time.optimizer = seconds_of(work.update, tables_) +
                     exposed(gathering, buckets, time.forward.empty() ? 0.0 : time.forward.front(), time.forward_looks);
  }

  TimePlan together(const std::vector<StageTime>& stages) const {
    TimePlan out;
    const auto sum = [](const std::vector<double>& values) {
      return std::accumulate(values.begin(), values.end(), 0.0);
    };
    for (const StageTime& stage : stages) {
      out.forward += sum(stage.forward);
      out.backward += sum(stage.backward);
      out.reduce += stage.reduce;
      out.optimizer += stage.optimizer;
      out.messages += stage.messages;
    }
    const auto count = static_cast<double>(stages.size());
    for (double* const phase : {&out.forward, &out.backward, &out.reduce, &out.optimizer, &out.messages}) {
      *phase /= count;
    }
    out.step = critical(stages);
    const double rest = out.step - (out.forward + out.backward + out.reduce + out.optimizer);
    out.waiting = std::abs(rest) > 1e-9 * out.step ? rest : 0.0;  // else rounding
    out.data_wait = std::max(0.0, reading() - (data_.io_threads == 0 ? 0.0 : out.step));
    out.step += out.data_wait;
    return out;
  }

  // The samples of a node, fields of numbers and images of bytes, at the rate of all its ranks.
  double reading() const {
    if (population_.reading_bytes_per_s == 0.0 || data_.kind != DataKind::kHdf5) {
      return 0.0;
    }
    const model::VitOptions& model = config_.model;
    const int64_t bytes =
        config_.is_forecast() ? (model.in_channels + model.out_channels) * size_of(at::kFloat) : model.in_channels;
    const double share = static_cast<double>(ranks_per_node_) / parallel_dims(config_.parallel).size();
    return static_cast<double>(config_.global_batch_size * bytes * model.image_height * model.image_width) * share /
           (population_.reading_bytes_per_s * population_.ranks);
  }

  // The longest way through the step.
  double critical(const std::vector<StageTime>& stages) const {
    double until_update = 0.0, update = 0.0;
    const int64_t elements = replica_.micro_batch * config_.model.num_tokens() * config_.model.embed_dim;
    if (replica_.micro_batches > 0) {
      const auto timeline = pipeline::time_actions(
          pipeline::make_schedule(config_.parallel.schedule, config_.parallel.pp, replica_.micro_batches),
          [&](const pipeline::Action& action) {
            const StageTime& stage = stages[static_cast<size_t>(action.stage)];
            const auto& times = action.kind == pipeline::ActionKind::kForward ? stage.forward : stage.backward;
            return times[static_cast<size_t>(action.micro_batch)];
          },
          network_.message(static_cast<double>(elements * size_of(policy_.compute))));
      double reduce = 0.0;
      for (size_t stage = 0; stage < stages.size(); ++stage) {
        until_update = std::max(until_update, timeline[stage].back().finish + stages[stage].reduce);
        reduce = std::max(reduce, stages[stage].reduce);
      }
      if (sharing_ > 1.0) {
        until_update = shared(timeline) + sharing_ * reduce;
      }
    }
    for (const StageTime& stage : stages) {
      update = std::max(update, stage.optimizer);
    }
    return until_update + std::max(sharing_, 1.0) * update;
  }

  // The end of the timeline where ranks share cores. Stages that are at work at one time take turns: all are slowed
  // alike, so that what follows what stays as it is.
  double shared(const std::vector<std::vector<pipeline::TimedAction>>& timeline) const {
    std::map<double, int> changes;  // of the number of stages at work, by time
    for (const auto& actions : timeline) {
      for (const auto& action : actions) {
        ++changes[action.start];
        --changes[action.finish];
      }
    }
    const double of_stage = sharing_ / static_cast<double>(timeline.size());
    double seconds = 0.0, since = 0.0;
    int working = 0;
    for (const auto& [time, change] : changes) {
      seconds += (time - since) * std::max(1.0, working * of_stage);
      since = time;
      working += change;
    }
    return seconds;
  }

  const StepConfig& config_;
  const DataConfig& data_;
  c10::DeviceType device_;
  int ranks_per_node_;
  const Population& population_;
  const RateTables& tables_;
  double sharing_;  // threads for each core
  Network network_;
  zero::PrecisionPolicy policy_;
  ReplicaPlan replica_;
};

}  // namespace

Json to_json(const TimePlan& time) {
  return {{"forward", time.forward},     {"backward", time.backward}, {"reduce", time.reduce},
          {"optimizer", time.optimizer}, {"waiting", time.waiting},   {"data_wait", time.data_wait},
          {"step", time.step},           {"messages", time.messages}};
}

std::string time_text(const TimePlan& time) {
  const auto seconds = [](double value) { return number_text(value, 3) + " s"; };
  return str("a step ", seconds(time.step), ": forward ", seconds(time.forward), ", backward ", seconds(time.backward),
             ", reduce ", seconds(time.reduce), ", optimizer ", seconds(time.optimizer), ", waiting ",
             seconds(time.waiting), time.data_wait > 0.0 ? ", waiting for data " + seconds(time.data_wait) : "",
             time.messages > 0.0 ? "; of forward and backward messages take " + seconds(time.messages) : "");
}

std::string missing_rates(const MachineFile& machine, Precision precision, c10::DeviceType device,
                          const RanksOnNodes& ranks) {
  if ((machine.device == "cuda") != (device == c10::DeviceType::CUDA)) {
    return str("it is of a machine that computes on '", machine.device, "', and the training on '",
               c10::DeviceTypeName(device, /*lower_case=*/true), "'; --device says on which");
  }
  const std::string type = precision_name(precision);
  const bool share_a_node = ranks.on_node() > 1;
  for (const Population& one : machine.populations) {
    const auto tables = one.types.find(type);
    if (tables == one.types.end()) {
      const std::string hint = device == c10::DeviceType::CUDA
                                   ? "; of GPUs they are written by hand (docs/planner.md, \"Machine files\")"
                                   : str("; vit_hybrid calibrate --precision ", type, " measures them");
      return str("it has no rates of ", type, " for ", counted(one.ranks, "rank"), " a node with ",
                 counted(one.threads, "thread"), hint);
    }
    for (const WorkKind& kind : kernel_kinds()) {
      const bool may_lack = std::string(kind.name) == "packing" || std::string(kind.name) == "dropout";
      if (!may_lack && !tables->second.contains(kind.name)) {
        return str("it has no rate of ", kind.name, " in ", type);
      }
    }
    for (const WorkKind& kind : message_kinds()) {
      if (share_a_node && !messages_of(machine, one).contains(kind.name)) {
        return str("it has no rate of ", kind.name, " between ranks of a node, and several are on one; ",
                   "vit_hybrid calibrate with several ranks measures it");
      }
    }
  }
  if (ranks.nodes() > 1 && machine.between_nodes.bytes_per_s == 0.0) {
    return str("it does not know what joins nodes ('between_nodes'), and the ", ranks.ranks, " ranks are on ",
               ranks.nodes(), "; vit_hybrid calibrate over several nodes measures it");
  }
  return {};
}

void require_rates(const MachineFile& machine, const std::string& file, Precision precision, c10::DeviceType device,
                   const RanksOnNodes& ranks) {
  if (const std::string missing = missing_rates(machine, precision, device, ranks); !missing.empty()) {
    throw Error(ErrorClass::kUsage, str("--machine ", file, " tells no times of this training: ", missing));
  }
}

std::string other_population(const std::string& file, const MachineFile& machine, int ranks_per_node, int threads) {
  const Population& used = population_of(machine, ranks_per_node, threads);
  const int ranks = ranks_at_once(machine, ranks_per_node, threads);
  if (machine.device == "cuda" || (used.threads == threads && used.ranks == ranks)) {
    return {};
  }
  const auto text = [](int of_node, int of_rank) {
    return str(counted(of_node, "rank"), " a node with ", counted(of_rank, "thread"));
  };
  return str("--machine ", file, ": the times are those of ", text(used.ranks, used.threads),
             ", the nearest that the machine file has, and here it is ", text(ranks, threads),
             ranks < ranks_per_node ? " at a time" : "", "; mpirun -n ", ranks, " vit_hybrid calibrate --threads ",
             threads, " adds them to it");
}

TimePlan plan_time(const StepConfig& config, const DataConfig& data, const MachineFile& machine, int ranks_per_node,
                   int threads) {
  return StepTime(config, data, machine, ranks_per_node, threads).plan();
}

}  // namespace vit_hybrid::train
