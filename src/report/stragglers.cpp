// Stragglers: own work by part, and the cumulative sums of what is too much of it.
#include "src/report/stragglers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "src/base/host.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

constexpr int64_t kWarmUpSteps = 3;      // of a process
constexpr double kSecondsOfLook = 0.05;  // at least
constexpr double kMostShare = 0.4;
constexpr double kShare = 0.05;      // of the steps' time: what is less is no straggler's
constexpr double kLeastLimit = 0.8;  // more than one look can add
constexpr double kSuspicion = 0.5;   // of the limit
constexpr double kRarity = 25.0;     // in the exponent
constexpr int64_t kFewestLooks = 8;
constexpr double kMemory = 32.0;         // looks that the noise is learnt of
constexpr double kMostGrowth = 4.0;      // of a look's noise over what is known
constexpr double kUsualVariance = 4e-3;  // of the share
constexpr double kPriorLooks = 4.0;      // that an assumed noise counts as
constexpr size_t kPartsOfSamples = 3;    // data wait, forward and backward: the others are the same for any number
constexpr int kLooksOfPast = 10;

// Blocked in the phase that the engine calls so.
double blocked_in(std::string_view phase, const std::vector<comm::PhaseBlocked>& counted) {
  const auto found =
      std::find_if(counted.begin(), counted.end(), [&](const comm::PhaseBlocked& b) { return b.phase == phase; });
  return found != counted.end() ? found->seconds : 0.0;
}

// As people read it: "data wait".
std::string part_text(const Json& of) {
  std::string text = of["part"];
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace

double total(const WorkSeconds& work) {
  return std::accumulate(work.begin(), work.end(), 0.0);
}

void add(WorkSeconds& sum, const WorkSeconds& work) {
  std::transform(sum.begin(), sum.end(), work.begin(), sum.begin(), std::plus<>());
}

Json to_json(const WorkSeconds& work) {
  Json json;
  for (size_t i = 0; i < work.size(); ++i) {
    json[kWorkParts[i]] = work[i];
  }
  return json;
}

Waits Waits::now() {
  return {comm::blocked_by_phase(), seconds_without_core()};
}

WorkSeconds own_work(const StepSeconds& seconds, const Waits& before, const Waits& after) {
  const auto without_waiting = [&](double part, const char* phase) {
    return std::max(0.0, part - (blocked_in(phase, after.blocked) - blocked_in(phase, before.blocked)));
  };
  WorkSeconds work = {seconds.data_wait,
                      without_waiting(seconds.forward, "forward"),
                      without_waiting(seconds.backward, "backward"),
                      without_waiting(seconds.reduce, "gradient reduction"),
                      without_waiting(seconds.optimizer, "optimizer"),
                      0.0};
  const comm::PhaseBlocked first = comm::total_of(before.blocked);
  const comm::PhaseBlocked last = comm::total_of(after.blocked);
  work.back() = std::max(0.0, seconds.step - (last.seconds - first.seconds) - total(work));
  const double computing = total(work) - work.front();
  const double without_core = after.without_core - before.without_core - (last.without_core - first.without_core);
  const double share = computing > 0.0 ? std::clamp(1.0 - without_core / computing, 0.0, 1.0) : 1.0;
  std::transform(work.begin() + 1, work.end(), work.begin() + 1, [&](double part) { return share * part; });
  return work;
}

Json to_json(const SlowSpell& spell) {
  return {{"from_step", spell.from},
          {"to_step", spell.to ? Json(*spell.to) : Json()},
          {"seconds_per_step", spell.seconds},
          {"percent", spell.percent}};
}

Json to_json(const SlowSpell& spell, int rank, const std::string& host) {
  Json json = {{"rank", rank}, {"host", host}, {"slow", !spell.to.has_value()}, {"part", kWorkParts[spell.part]}};
  json.update(to_json(spell));
  return json;
}

StragglerLines straggler_lines(int64_t step, const std::vector<Json>& found) {
  StragglerLines lines;
  for (const bool is_slow : {true, false}) {
    std::map<std::string, std::vector<int>> by_host;
    const Json* worst = nullptr;
    size_t count = 0;
    for (const Json& rank : found) {
      if (rank["slow"] == is_slow) {
        by_host[rank["host"]].push_back(rank["rank"]);
        worst = worst == nullptr || rank["percent"] > (*worst)["percent"] ? &rank : worst;
        ++count;
      }
    }
    if (worst == nullptr) {
      continue;
    }
    std::vector<std::string> who;
    for (const auto& [host, ranks] : by_host) {
      who.push_back(str(ranks.size() == 1 ? "rank " : "ranks ", join(ranks), " on ", host));
    }
    const std::string head = str("step ", step, ": ", join(who), count == 1 ? " is" : " are");
    const Json& of = *worst;
    if (is_slow) {
      lines.slow = str(head, " slow since step ", of["from_step"].get<int64_t>(), ": ", count == 1 ? "" : "up to ",
                       number_text(1e3 * of["seconds_per_step"].get<double>(), 3), " ms a step (",
                       number_text(of["percent"].get<double>(), 3), " %) more work than its peers have, most of it in ",
                       part_text(of));
    } else {
      lines.recovered =
          str(head, " slow no more: in steps ", of["from_step"].get<int64_t>(), " to ", of["to_step"].get<int64_t>(),
              " it was ", number_text(of["percent"].get<double>(), 3), " % of a step, most of it in ", part_text(of));
    }
  }
  return lines;
}

Json deciding_rank(const Json& ranks, int64_t steps) {
  if (ranks.size() < 2 || steps == 0) {
    return nullptr;
  }
  const auto work = [](const Json& rank) {
    return std::accumulate(kWorkParts.begin(), kWorkParts.end(), 0.0,
                           [&](double sum, const char* part) { return sum + rank["own_seconds"][part].get<double>(); });
  };
  const Json& most =
      *std::max_element(ranks.begin(), ranks.end(), [&](const Json& a, const Json& b) { return work(a) < work(b); });
  std::vector<const Json*> peers;
  for (const bool of_stage : {true, false}) {
    for (const Json& rank : ranks) {
      if (&rank != &most && (!of_stage || rank["stage"] == most["stage"])) {
        peers.push_back(&rank);
      }
    }
    if (!peers.empty()) {
      break;
    }
  }
  double others = 0.0;
  std::string part = kWorkParts.front();
  double largest = 0.0;
  for (const char* const name : kWorkParts) {
    const double mean = std::accumulate(peers.begin(), peers.end(), 0.0,
                                        [&](double sum, const Json* peer) {
                                          return sum + (*peer)["own_seconds"][name].get<double>();
                                        }) /
                        static_cast<double>(peers.size());
    others += mean;
    if (const double difference = most["own_seconds"][name].get<double>() - mean; difference > largest) {
      largest = difference;
      part = name;
    }
  }
  return {{"rank", most["rank"]},
          {"host", most["host"]},
          {"part", part},
          {"own_seconds", work(most) / static_cast<double>(steps)},
          {"others_seconds", others / static_cast<double>(steps)}};
}

std::string deciding_line(const Json& deciding) {
  return str("rank ", deciding["rank"].get<int>(), " on ", deciding["host"].get<std::string>(),
             " has most work: ", fixed_text(1e3 * deciding["own_seconds"].get<double>(), 3),
             " ms a step beside waiting for others, who have ",
             fixed_text(1e3 * deciding["others_seconds"].get<double>(), 3), " ms; most of the difference in ",
             part_text(deciding));
}

void StragglerWatch::Look::add(const Look& other) {
  first = first == 0 ? other.first : first;
  steps += other.steps;
  seconds += other.seconds;
  train::add(own, other.own);
  samples += other.samples;
  peers = other.peers;
  train::add(peers_work, other.peers_work);
  peers_samples += other.peers_samples;
}

void StragglerWatch::Excess::add(const Look& look, const WorkSeconds& excess) {
  first = first == 0 ? look.first : first;
  steps += look.steps;
  seconds += look.seconds;
  train::add(work, excess);
}

bool StragglerWatch::add(const WatchedStep& step) {
  if (++num_steps_ <= kWarmUpSteps) {
    return false;
  }
  look_.add({step.step, 1, step.seconds, step.own, step.samples, step.peers, step.peers_work, step.peers_samples});
  return look_.seconds >= kSecondsOfLook && judge(std::exchange(look_, {}));
}

std::optional<WorkSeconds> StragglerWatch::excess_of(const Look& look) {
  const bool has_peers = look.peers > 1;
  if (!has_peers && num_past_ < kLooksOfPast) {
    past_.add(look);
    ++num_past_;
    return std::nullopt;
  }
  const double samples = has_peers ? look.peers_samples - look.samples : past_.samples;
  if (samples <= 0.0) {
    return std::nullopt;
  }
  const double by_samples = look.samples / samples;
  const double by_steps =
      has_peers ? 1.0 / (look.peers - 1) : static_cast<double>(look.steps) / static_cast<double>(past_.steps);
  WorkSeconds excess{};
  for (size_t i = 0; i < excess.size(); ++i) {
    const double others = has_peers ? look.peers_work[i] - look.own[i] : past_.own[i];
    excess[i] = look.own[i] - others * (i < kPartsOfSamples ? by_samples : by_steps);
  }
  return excess;
}

// By differences of neighbours, which a lasting change does not move; and slowly, because somebody slow may be so by
// fits and starts.
void StragglerWatch::learn_noise(double share) {
  if (last_share_) {
    const double difference = share - *last_share_;
    const double memory = std::min(kMemory, kPriorLooks + static_cast<double>(num_looks_));
    const double most = kMostGrowth * std::max(variance_, kUsualVariance);
    variance_ += (std::min(0.5 * difference * difference, most) - variance_) / memory;
  }
  last_share_ = share;
}

StragglerWatch::StragglerWatch() : variance_(kUsualVariance) {}

double StragglerWatch::limit() const {
  return std::max(kLeastLimit, kRarity * variance_ / (2.0 * kShare));
}

bool StragglerWatch::judge(const Look& look) {
  const auto excess = excess_of(look);
  if (!excess) {
    return false;
  }
  const double share = std::clamp(total(*excess) / look.seconds, -kMostShare, kMostShare);
  learn_noise(share);
  ++num_looks_;
  return is_slow() ? look_for_recovery(look, share, *excess) : look_for_onset(look, share, *excess);
}

SlowSpell StragglerWatch::spell() const {
  const auto most = std::max_element(excess_.work.begin(), excess_.work.end());
  SlowSpell spell;
  spell.from = excess_.first;
  spell.part = static_cast<size_t>(most - excess_.work.begin());
  spell.seconds = total(excess_.work) / static_cast<double>(excess_.steps);
  spell.percent = 100.0 * total(excess_.work) / excess_.seconds;
  return spell;
}

bool StragglerWatch::look_for_onset(const Look& look, double share, const WorkSeconds& excess) {
  score_ = std::max(0.0, score_ + share - kShare);
  if (score_ == 0.0) {
    excess_ = {};
    suspects_ = false;
    return false;
  }
  excess_.add(look, excess);
  if (num_looks_ < kFewestLooks || score_ <= kSuspicion * limit()) {
    return false;
  }
  if (score_ <= limit()) {
    suspects_ = true;
    return false;
  }
  confirm();
  return true;
}

void StragglerWatch::confirm() {
  spells_.push_back(spell());
  score_ = 0.0;
  suspects_ = false;
}

bool StragglerWatch::look_for_recovery(const Look& look, double share, const WorkSeconds& excess) {
  // Well is who is nearer to that than to slow, as far as a look's share tells.
  score_ = std::max(0.0, score_ + std::clamp(0.005 * spells_.back().percent, kShare, 0.5 * kMostShare) - share);
  if (score_ == 0.0) {
    excess_.add(look, excess);
    spells_.back() = spell();
    well_since_ = 0;
    return false;
  }
  well_since_ = well_since_ == 0 ? look.first : well_since_;
  if (score_ <= limit()) {
    return false;
  }
  spells_.back().to = std::exchange(well_since_, 0) - 1;
  score_ = 0.0;
  excess_ = {};
  return true;
}

}  // namespace vit_hybrid::train
