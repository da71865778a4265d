// A tournament of messages between nodes, what its table of rates says, and the watch over communication.
#include "src/report/network_watch.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

#include "parallel/comm/failure.h"
#include "src/base/text.h"
#include "src/base/timer.h"

namespace vit_hybrid::train {

namespace {

constexpr int kMessages = 3;

void send_to(const comm::MpiGroup& world, int rank, const std::vector<char>& bytes) {
  for (int i = 0; i < kMessages; ++i) {
    char is_ready = 0;
    world.receive(&is_ready, 1, rank);
    world.send(bytes.data(), std::ssize(bytes), rank);
  }
}

double rate_from(const comm::MpiGroup& world, int rank, std::vector<char>& bytes) {
  double best = 0.0;
  for (int i = 0; i < kMessages; ++i) {
    const char is_ready = 1;
    const Timer timer;
    world.send(&is_ready, 1, rank);
    world.receive(bytes.data(), std::ssize(bytes), rank);
    best = std::max(best, static_cast<double>(bytes.size()) / timer.seconds());
  }
  return best;
}

}  // namespace

int partner(int node, int round, int players) {
  const int others = players - 1;
  if (node == others) {
    return round * (players / 2) % others;  // whose partner among the others would be itself
  }
  const int mirror = (round - node + others) % others;
  return mirror == node ? others : mirror;
}

LinkRates measure_link_rates(const comm::MpiGroup& world, const std::vector<int>& nodes, int64_t bytes) {
  const auto num_nodes = static_cast<int>(nodes.size());
  if (num_nodes == 1) {
    return {};
  }
  std::vector<int> first(nodes.size(), 0);  // rank of each node
  std::partial_sum(nodes.begin(), nodes.end() - 1, first.begin() + 1);
  const auto own = std::find(first.begin(), first.end(), world.rank());
  LinkRates rates;
  if (own != first.end()) {
    const auto node = static_cast<int>(own - first.begin());
    std::vector<char> buffer(static_cast<size_t>(bytes));
    std::vector<double> received(nodes.size(), 0.0);
    const int players = num_nodes + num_nodes % 2;
    for (int round = 0; round + 1 < players; ++round) {
      const int other = partner(node, round, players);
      if (other == num_nodes) {
        continue;  // an odd number: one rests
      }
      const int rank = first[static_cast<size_t>(other)];
      if (node < other) {
        send_to(world, rank, buffer);
      }
      received[static_cast<size_t>(other)] = rate_from(world, rank, buffer);
      if (node > other) {
        send_to(world, rank, buffer);
      }
    }
    const auto row_bytes = static_cast<int64_t>(received.size() * sizeof(double));
    if (world.rank() != 0) {
      world.send(received.data(), row_bytes, 0);
    } else {
      rates.assign(nodes.size(), std::vector<double>(nodes.size(), 0.0));
      for (size_t to = 0; to < nodes.size(); ++to) {
        if (to > 0) {
          world.receive(received.data(), row_bytes, first[to]);
        }
        for (size_t from = 0; from < nodes.size(); ++from) {
          rates[from][to] = received[from];
        }
      }
    }
  }
  world.barrier();
  return rates;
}

namespace {

constexpr int64_t kProbeBytes = int64_t{4} << 20;
constexpr double kSlow = 0.75;  // of the others' rate

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string rate_text(double bytes_per_second) {
  return bytes_per_second < 1e9 ? number_text(1e-6 * bytes_per_second, 3) + " MB/s"
                                : number_text(1e-9 * bytes_per_second, 3) + " GB/s";
}

// The node whose links, `rate(node, other)` of each, are slowest, and their median.
struct Suspect {
  size_t node = 0;
  double rate = 0.0;
};
template <class Rate>
Suspect slowest_node(size_t num_nodes, const Rate& rate) {
  Suspect slowest;
  for (size_t node = 0; node < num_nodes; ++node) {
    std::vector<double> own;
    for (size_t other = 0; other < num_nodes; ++other) {
      if (other != node) {
        own.push_back(rate(node, other));
      }
    }
    if (const double median = median_of(std::move(own)); node == 0 || median < slowest.rate) {
      slowest = {node, median};
    }
  }
  return slowest;
}

}  // namespace

LinkSummary summary_of(const LinkRates& rates) {
  LinkSummary summary;
  std::vector<double> values;
  for (size_t from = 0; from < rates.size(); ++from) {
    for (size_t to = 0; to < rates.size(); ++to) {
      if (from == to) {
        continue;
      }
      values.push_back(rates[from][to]);
      if (values.size() == 1 || values.back() < summary.slowest) {
        summary.slowest = values.back();
        summary.from = from;
        summary.to = to;
      }
    }
  }
  summary.median = median_of(std::move(values));
  return summary;
}

LinkFinding find_slow_link(const LinkRates& now, const LinkRates& before, const std::vector<std::string>& hosts) {
  const LinkSummary all = summary_of(now);
  const std::string link = str("from ", hosts[all.from], " to ", hosts[all.to], " go ", rate_text(all.slowest));
  if (now.size() == 2) {  // where a link is a node's
    if (const double back = now[all.to][all.from]; all.slowest < kSlow * back) {
      return {true, str(link, ", the other way ", rate_text(back))};
    }
  } else {
    const Suspect sends = slowest_node(now.size(), [&](size_t node, size_t other) { return now[node][other]; });
    const Suspect receives = slowest_node(now.size(), [&](size_t node, size_t other) { return now[other][node]; });
    for (const auto& [suspect, does] : {std::pair(sends, " sends "), std::pair(receives, " receives ")}) {
      if (suspect.rate < kSlow * all.median) {
        return {true, str(hosts[suspect.node], does, rate_text(suspect.rate), ", the others ", rate_text(all.median))};
      }
    }
    if (all.slowest < kSlow * all.median) {
      return {true, str(link, ", over the other links ", rate_text(all.median))};
    }
  }
  const double former = summary_of(before).median;
  const std::string rates = str(rate_text(all.median), ", at the start ", rate_text(former));
  return all.median < kSlow * former ? LinkFinding{true, "all links are slow: " + rates}
                                     : LinkFinding{false, "no link is slow by itself: " + rates};
}

NetworkWatch::NetworkWatch(const comm::MpiGroup& world) : world_(world), nodes_(world.node_sizes()) {
  const std::vector<std::string> host_of = world.gather(comm::process_place().host);
  if (world.rank() == 0) {
    size_t rank = 0;
    for (const int ranks : nodes_) {
      hosts_.push_back(host_of[rank]);
      rank += static_cast<size_t>(ranks);
    }
  }
  at_start_ = measure_link_rates(world, nodes_, kProbeBytes);
}

std::string NetworkWatch::start_line() const {
  if (at_start_.empty()) {
    return "";
  }
  const LinkSummary links = summary_of(at_start_);
  return str("  links     ", rate_text(links.median), " from node to node, the median; slowest from ",
             hosts_[links.from], " to ", hosts_[links.to], ", ", rate_text(links.slowest));
}

Json NetworkWatch::start_json() const {
  if (at_start_.empty()) {
    return nullptr;
  }
  const LinkSummary links = summary_of(at_start_);
  return {{"median", links.median}, {"slowest", links.slowest}, {"from", hosts_[links.from]}, {"to", hosts_[links.to]}};
}

bool NetworkWatch::add(int64_t step, double seconds, double least_blocked) {
  const bool suspected = watch_.suspects();
  const bool changed = watch_.add({step, seconds, {0.0, 0.0, 0.0, 0.0, 0.0, least_blocked}, 1.0});
  return changed || (watch_.suspects() && !suspected);
}

Json NetworkWatch::tell(int64_t step) {
  const bool measure = watch_.suspects() || watch_.is_slow();
  const LinkRates now = measure ? measure_link_rates(world_, nodes_, kProbeBytes) : LinkRates{};
  const LinkFinding finding = now.empty() ? LinkFinding{} : find_slow_link(now, at_start_, hosts_);
  if (watch_.suspects()) {
    bool confirmed = finding.is_slow;
    world_.broadcast(&confirmed, sizeof(confirmed), 0);
    if (!confirmed) {
      return nullptr;
    }
    watch_.confirm();
  }
  const SlowSpell& spell = watch_.spells().back();
  Json record = {{"kind", "network"}, {"step", step}, {"slow", !spell.to.has_value()}};
  record.update(to_json(spell));
  record["slow_link"] = finding.is_slow;
  record["found"] = finding.text;
  return record;
}

Json NetworkWatch::spells() const {
  Json spells = Json::array();
  std::transform(watch_.spells().begin(), watch_.spells().end(), std::back_inserter(spells),
                 [](const SlowSpell& spell) { return to_json(spell); });
  return spells;
}

std::string network_line(const Json& record) {
  const std::string head = str("step ", record["step"].get<int64_t>(), ": communication is slow ");
  const std::string percent = number_text(record["percent"].get<double>(), 3);
  if (!record["slow"].get<bool>()) {
    return str(head, "no more: in steps ", record["from_step"].get<int64_t>(), " to ", record["to_step"].get<int64_t>(),
               " it was, by ", percent, " % of a step");
  }
  return str(head, "since step ", record["from_step"].get<int64_t>(), ": all ranks wait ",
             number_text(1e3 * record["seconds_per_step"].get<double>(), 3), " ms a step (", percent,
             " %) longer than before; ", record["found"].get<std::string>());
}

}  // namespace vit_hybrid::train
