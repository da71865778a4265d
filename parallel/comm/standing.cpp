// The text between nodes, and the judgement of who has kept the others waiting.
#include "parallel/comm/standing.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "parallel/comm/host_task.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

constexpr char kBetweenFields = '\t';

// A field may hold anything but the two separators.
std::string plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return text;
}

class Fields {
 public:
  explicit Fields(const std::string& line) : line_(line) {}

  std::string text() {
    std::string field;
    is_whole_ = is_whole_ && static_cast<bool>(std::getline(line_, field, kBetweenFields));
    return field;
  }
  template <class T>
  T number() {
    std::istringstream field(text());
    T value{};
    is_whole_ = is_whole_ && static_cast<bool>(field >> value);
    return value;
  }
  bool is_whole() const { return is_whole_; }

 private:
  std::istringstream line_;
  bool is_whole_ = true;
};

std::string line_of(const Standing& s) {
  std::ostringstream out;
  out.precision(17);
  const auto put = [&](const auto& value) { out << value << kBetweenFields; };
  put(s.rank), put(s.pid), put(plain(s.host)), put(static_cast<int>(s.state)), put(s.still), put(s.silent);
  put(s.is_halted), put(s.is_blind), put(s.is_idle), put(plain(s.system_call)), put(s.is_restless),
      put(plain(s.condition)), put(s.step), put(plain(s.position));
  put(plain(s.operation)), put(s.group), put(s.turn), put(s.group_size);
  put(s.awaits.size());
  for (const int rank : s.awaits)
    put(rank);
  put(s.turns.size());
  for (const GroupTurn& turn : s.turns)
    put(turn.group), put(turn.turn), put(turn.axis), put(turn.made), put(turn.made_before);
  return out.str();
}

constexpr size_t kMostInList = 4096;

Standing standing_of(Fields& fields) {
  Standing s;
  s.rank = fields.number<int>();
  s.pid = fields.number<int>();
  s.host = fields.text();
  s.state =
      static_cast<Standing::State>(std::clamp(fields.number<int>(), 0, static_cast<int>(Standing::State::kEnded)));
  s.still = fields.number<double>();
  s.silent = fields.number<double>();
  s.is_halted = fields.number<bool>();
  s.is_blind = fields.number<bool>();
  s.is_idle = fields.number<bool>();
  s.system_call = fields.text();
  s.is_restless = fields.number<bool>();
  s.condition = fields.text();
  s.step = fields.number<int64_t>();
  s.position = fields.text();
  s.operation = fields.text();
  s.group = fields.number<uint64_t>();
  s.turn = fields.number<uint64_t>();
  s.group_size = fields.number<int>();
  for (size_t left = std::min(fields.number<size_t>(), kMostInList); left > 0 && fields.is_whole(); --left)
    s.awaits.push_back(fields.number<int>());
  for (size_t left = std::min(fields.number<size_t>(), kMostInList); left > 0 && fields.is_whole(); --left) {
    GroupTurn turn;
    turn.group = fields.number<uint64_t>();
    turn.turn = fields.number<uint64_t>();
    turn.axis = fields.number<uint64_t>();
    turn.made = fields.number<uint64_t>();
    turn.made_before = fields.number<uint64_t>();
    s.turns.push_back(turn);
  }
  return s;
}

using Indices = std::vector<size_t>;
using State = Standing::State;

// Whoever waits in a loop of ours looks thousands of times a second, on a crowded machine a few times.
double longest_silence(double limit) {
  return std::max(1.0, limit / 2);
}

class Waits {
 public:
  Waits(const std::vector<Standing>& table, double limit) : table_(table), limit_(limit), targets_(table.size()) {
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i].rank >= 0 && !has_ended(i)) by_rank_[table[i].rank] = i;
      for (const GroupTurn& turn : table[i].turns)
        members_[turn.group].emplace_back(i, turn.turn);
    }
    for (size_t i = 0; i < table.size(); ++i) {
      if (is_overdue(i)) targets_[i] = find_targets(i);
    }
  }

  // It waits and runs, and has done so for the limit.
  bool is_overdue(size_t i) const {
    return table_[i].state == State::kWaiting && table_[i].still > limit_ && !is_dead(i);
  }
  bool is_stuck(size_t i) const {
    return table_[i].still > limit_ && !has_ended(i) && (table_[i].state != State::kWaiting || is_dead(i));
  }
  const Indices& targets(size_t i) const { return targets_[i]; }

  // Those whom `start` waits for, and whom they wait for, and so on, as far as all have waited too long.
  Indices reach(size_t start) const {
    std::vector<char> is_seen(table_.size(), 0);
    Indices out = {start};
    is_seen[start] = 1;
    for (size_t next = 0; next < out.size(); ++next) {
      for (const size_t target : targets_[out[next]]) {
        if (std::exchange(is_seen[target], 1) != 0) continue;
        out.push_back(target);
      }
    }
    return out;
  }

  bool has_ended(size_t i) const { return table_[i].state == State::kEnded; }

  // Whether all ranks of what `i` waits in have come through it but itself.
  bool is_last(size_t i) const {
    return knows_group_of(i) && others(i, [&](size_t member, uint64_t) { return !has_ended(member); }).empty();
  }

  // Whether it waits for another node in a collective that all of its ranks have begun.
  bool lacks_messages(size_t i) const {
    const Standing& s = table_[i];
    if (s.turn == 0 || !knows_group_of(i) || !behind(i).empty()) return false;
    return std::any_of(targets_[i].begin(), targets_[i].end(),
                       [&](size_t target) { return table_[target].host != s.host; });
  }

  // Whether all ranks of what `i` waits in are in the table.
  bool knows_group_of(size_t i) const {
    const auto found = members_.find(table_[i].group);
    return found != members_.end() && static_cast<int>(found->second.size()) >= table_[i].group_size;
  }

 private:
  bool is_dead(size_t i) const {
    const Standing& s = table_[i];
    return s.is_halted || (!s.is_blind && s.state == State::kWaiting && s.silent > longest_silence(limit_));
  }

  // The others that are known of the group that `i` waits in, as far as is_one(number in the table, its turn).
  template <class Is>
  Indices others(size_t i, Is is_one) const {
    Indices out;
    const auto found = members_.find(table_[i].group);
    if (found == members_.end()) return out;
    for (const auto& [member, turn] : found->second) {
      if (member != i && is_one(member, turn)) out.push_back(member);
    }
    return out;
  }

  // Those who have not begun the collective that it waits in.
  Indices behind(size_t i) const {
    return others(i, [&](size_t, uint64_t turn) { return turn < table_[i].turn; });
  }

  // Those who are behind; else those whom it says it waits for; else whoever of the group does something else than to
  // wait, since a rank that waits serves all operations in flight.
  Indices find_targets(size_t i) const {
    const Standing& s = table_[i];
    if (s.group == 0) return busy_ones(i);
    if (Indices late = behind(i); !late.empty()) return late;
    Indices awaited;
    for (const int rank : s.awaits) {
      if (const auto found = by_rank_.find(rank); found != by_rank_.end()) awaited.push_back(found->second);
    }
    if (!awaited.empty()) return awaited;
    const Indices busy = others(i, [&](size_t member, uint64_t) { return !is_overdue(member) && !has_ended(member); });
    return busy.empty() && !knows_group_of(i) ? mute_ones() : busy;
  }

  // What they do is not known, nor of which groups they are.
  Indices mute_ones() const {
    Indices mute;
    for (size_t i = 0; i < table_.size(); ++i) {
      if (table_[i].state == State::kMute) mute.push_back(i);
    }
    return mute;
  }

  // Where it is not said with whom it waits.
  Indices busy_ones(size_t i) const {
    Indices busy;
    for (size_t other = 0; other < table_.size(); ++other) {
      if (other != i && !is_overdue(other) && !has_ended(other)) busy.push_back(other);
    }
    return busy;
  }

  const std::vector<Standing>& table_;
  double limit_;
  std::map<int, size_t> by_rank_;
  std::map<uint64_t, std::vector<std::pair<size_t, uint64_t>>> members_;
  std::vector<Indices> targets_;
};

// Two nodes, of which ranks of one wait for ranks of the other.
using NodePair = std::pair<std::string, std::string>;

std::vector<NodePair> pairs_between(const std::vector<Standing>& table, const Standing& waiting) {
  std::vector<NodePair> pairs;
  for (const int rank : waiting.awaits) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const Standing& s) { return s.rank == rank; });
    if (found != table.end() && found->host != waiting.host) pairs.emplace_back(waiting.host, found->host);
  }
  return pairs;
}

// Those between which the messages are missing that `waiting` wait for: where two nodes wait for each other, these;
// they keep the others waiting.
std::set<NodePair> broken_pairs(const std::vector<Standing>& table, const Indices& waiting) {
  std::set<NodePair> pairs;
  for (const size_t i : waiting) {
    const std::vector<NodePair> own = pairs_between(table, table[i]);
    pairs.insert(own.begin(), own.end());
  }
  std::set<NodePair> mutual;
  std::copy_if(pairs.begin(), pairs.end(), std::inserter(mutual, mutual.begin()), [&](const NodePair& pair) {
    return pairs.contains({pair.second, pair.first});
  });
  return mutual.empty() ? pairs : mutual;
}

// Those with the largest `votes`, which are not zero.
Indices most_of(const std::map<size_t, double>& votes) {
  double most = 0.0;
  for (const auto& [i, count] : votes)
    most = std::max(most, count);
  Indices out;
  for (const auto& [i, count] : votes) {
    if (count > 0.0 && count == most) out.push_back(i);
  }
  return out;
}

class Judge {
 public:
  Judge(const std::vector<Standing>& table, double limit) : table_(table), limit_(limit), waits_(table, limit) {
    for (size_t i = 0; i < table.size(); ++i) {
      if (waits_.is_overdue(i)) judge(i, waits_.reach(i));
    }
    if (is_standstill()) judge_standstill();
  }

  Blame blame() {
    if (!stuck_.empty()) return make(Blame::Kind::kStuck, sorted(stuck_));
    if (held_up_.empty()) return {};
    if (const Indices last = held_up_ones(&Waits::is_last); !last.empty()) return make(Blame::Kind::kStuck, last);
    for (const auto is_odd : {&Standing::is_idle, &Standing::is_restless}) {
      if (const Indices odd = odd_ones(is_odd); !odd.empty()) return make(Blame::Kind::kStuck, odd);
    }
    if (const Indices odd = blocked_elsewhere(); !odd.empty()) return make(Blame::Kind::kStuck, odd);
    if (is_anybody_overdue_soon()) return {};
    if (!knows_all()) return make(Blame::Kind::kUnknown, {});
    if (const Indices unlike = unlike_ones(); !unlike.empty()) return make(Blame::Kind::kApart, unlike);
    // Whoever runs and waits serves all that is in flight: then it is the network that brings nothing.
    if (const Indices lacking = lacking_ones(); !lacking.empty()) return make(Blame::Kind::kUndelivered, lacking);
    const Indices apart = apart_ones();
    return apart.empty() ? make(Blame::Kind::kUnknown, {}) : make(Blame::Kind::kApart, apart);
  }

 private:
  void judge(size_t waiter, const Indices& reached) {
    bool is_moving = false;
    bool is_stuck = false;
    for (const size_t i : reached) {
      if (waits_.is_stuck(i)) {
        ++stuck_[i];
        is_stuck = true;
      } else if (!waits_.is_overdue(i)) {
        is_moving = true;
      }
    }
    if (is_stuck) waiters_of_stuck_.push_back(waiter);
    if (!is_stuck && !is_moving) held_up_.push_back(waiter);
  }

  bool is_unseen_waiter(size_t i) const { return table_[i].state == State::kWaiting && !table_[i].is_halted; }

  // Nobody comes further, and some wait who are not seen to run: they spin in a library, at a lock of one that does not
  // move.
  bool is_standstill() const {
    bool is_waited = false;
    for (size_t i = 0; i < table_.size(); ++i) {
      if (waits_.has_ended(i)) continue;
      if (!waits_.is_stuck(i)) return false;
      is_waited = is_waited || is_unseen_waiter(i);
    }
    return is_waited;
  }

  void judge_standstill() {
    Indices others;
    for (size_t i = 0; i < table_.size(); ++i) {
      if (!waits_.has_ended(i)) (is_unseen_waiter(i) ? waiters_of_stuck_ : others).push_back(i);
    }
    for (const size_t i : others.empty() ? waiters_of_stuck_ : others)
      stuck_[i] = 1.0;
  }

  Indices sorted(const std::map<size_t, double>& votes) const {
    Indices out;
    for (const auto& [i, count] : votes)
      out.push_back(i);
    std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return votes.at(a) > votes.at(b); });
    return out;
  }

  Indices held_up_ones(bool (Waits::*is_one)(size_t) const) const {
    Indices ones;
    std::copy_if(held_up_.begin(), held_up_.end(), std::back_inserter(ones),
                 [&](size_t i) { return (waits_.*is_one)(i); });
    return ones;
  }

  Indices lacking_ones() const {
    Indices lacking = held_up_ones(&Waits::lacks_messages);
    const std::set<NodePair> broken = broken_pairs(table_, lacking);
    std::erase_if(lacking, [&](size_t i) {
      const std::vector<NodePair> own = pairs_between(table_, table_[i]);
      return std::none_of(own.begin(), own.end(), [&](const NodePair& pair) { return broken.contains(pair); });
    });
    return lacking;
  }

  // Inside of a library nobody is seen to look. But the few who use no processor where others do, or never rest where
  // others do, are not there for them.
  Indices odd_ones(bool Standing::*is_odd) const {
    Indices odd;
    for (const size_t i : held_up_) {
      if (table_[i].is_blind && table_[i].*is_odd) odd.push_back(i);
    }
    return 2 * odd.size() <= held_up_.size() && odd.size() < held_up_.size() ? odd : Indices();
  }

  // Where all use no processor, as in a library that waits for the launcher: the few that are blocked in another call
  // of the system.
  Indices blocked_elsewhere() const {
    std::map<std::string, Indices> by_place;
    for (const size_t i : held_up_) {
      if (!table_[i].is_idle || table_[i].system_call.empty()) return {};
      by_place[table_[i].system_call].push_back(i);
    }
    return fewer_than_most(by_place);
  }

  // All but those of the largest sets.
  template <class Key>
  static Indices fewer_than_most(const std::map<Key, Indices>& sets) {
    size_t most = 0;
    for (const auto& [key, members] : sets)
      most = std::max(most, members.size());
    Indices few;
    for (const auto& [key, members] : sets) {
      if (members.size() < most) few.insert(few.end(), members.begin(), members.end());
    }
    return few;
  }

  bool knows_all() const {
    return std::all_of(held_up_.begin(), held_up_.end(), [&](size_t i) { return waits_.knows_group_of(i); });
  }

  // Where all wait for each other, each of them is a witness, and other nodes' watchdogs look at other moments.
  bool is_anybody_overdue_soon() const {
    for (size_t i = 0; i < table_.size(); ++i) {
      const bool waits = table_[i].state == State::kWaiting && !waits_.is_overdue(i);
      if (waits && table_[i].still > limit_ - kSoon) return true;
    }
    return false;
  }

  // Those who make or have made another collective than most of its ranks in a turn in which somebody waits. MPI may
  // take the one for the other: then some are one turn further.
  Indices unlike_ones() const {
    std::set<std::pair<uint64_t, uint64_t>> awaited;
    for (const size_t i : held_up_) {
      if (table_[i].turn > 0) awaited.emplace(table_[i].group, table_[i].turn);
    }
    for (const auto& [group, turn] : awaited) {
      std::map<uint64_t, Indices> by_name;
      for (size_t i = 0; i < table_.size(); ++i) {
        for (const GroupTurn& own : table_[i].turns) {
          const uint64_t name = own.turn == turn ? own.made : own.turn == turn + 1 ? own.made_before : 0;
          if (own.group == group && name != 0) by_name[name].push_back(i);
        }
      }
      if (const Indices unlike = fewer_than_most(by_name); !unlike.empty()) return unlike;
    }
    return {};
  }

  // All wait for each other: the one that is elsewhere is one for whom somebody waits, and that has left a collective
  // out which those who stand where it stands have made. Else the one that most of them miss; of several, the one that
  // is further.
  Indices apart_ones() const {
    std::map<size_t, double> left_out;
    std::map<size_t, double> missed;
    std::map<size_t, double> steps;
    for (const size_t i : held_up_) {
      for (const size_t target : waits_.targets(i)) {
        missed[target] += 1.0;
        left_out[target] += num_ahead(target, axis_of(table_[i]));
      }
    }
    const Indices odd = most_of(left_out);
    for (const size_t i : odd.empty() ? most_of(missed) : odd)
      steps[i] = static_cast<double>(table_[i].step) + 2.0;
    return most_of(steps);
  }

  static uint64_t axis_of(const Standing& s) {
    for (const GroupTurn& turn : s.turns) {
      if (turn.group == s.group) return turn.axis;
    }
    return 0;
  }

  static uint64_t turns_of_axis(const Standing& s, uint64_t axis) {
    uint64_t turns = 0;
    for (const GroupTurn& turn : s.turns)
      turns += turn.axis == axis ? turn.turn : 0;
    return turns;
  }

  // How many of those who wait in the same collective as `i` have begun one more on that axis. Stages of a pipeline
  // differ by more.
  double num_ahead(size_t i, uint64_t axis) const {
    const Standing& s = table_[i];
    if (axis == 0 || s.state != State::kWaiting || s.turn == 0) return 0.0;
    double count = 0.0;
    for (const size_t other : held_up_) {
      const Standing& o = table_[other];
      const bool is_beside = o.group == s.group && o.turn == s.turn;
      if (is_beside && turns_of_axis(o, axis) == turns_of_axis(s, axis) + 1) count += 1.0;
    }
    return count;
  }

  Blame make(Blame::Kind kind, Indices culprits) const {
    Blame blame{kind, std::move(culprits),
                kind == Blame::Kind::kStuck && !stuck_.empty() ? waiters_of_stuck_ : held_up_};
    std::erase_if(blame.waiters, [&](size_t i) {
      return std::find(blame.culprits.begin(), blame.culprits.end(), i) != blame.culprits.end();
    });
    std::stable_sort(blame.waiters.begin(), blame.waiters.end(),
                     [&](size_t a, size_t b) { return table_[a].still > table_[b].still; });
    return blame;
  }

  static constexpr double kSoon = 0.3;  // seconds

  const std::vector<Standing>& table_;
  double limit_;
  Waits waits_;
  std::map<size_t, double> stuck_;  // and how many it keeps waiting
  Indices waiters_of_stuck_;
  Indices held_up_;  // by nobody who comes further, and by nobody who is stuck
};

std::string seconds_text(double seconds) {
  return str(std::round(seconds * 10.0) / 10.0, " s");
}

std::string name_of(const Standing& s) {
  const std::string rank = s.rank >= 0 ? str("rank ", s.rank) : "a rank that has not come to its start";
  return str(rank, s.host.empty() ? "" : " on " + s.host, s.pid > 0 ? str(" (process ", s.pid, ")") : "");
}

std::string place_of(const Standing& s) {
  const std::string condition = s.condition.empty() ? "" : s.condition + ", ";
  if (s.state == State::kAbsent) return condition + "it has not come to its start";
  if (s.state == State::kMute) return "it does not answer over TCP, stopped or on a machine that hangs";
  if (s.operation.empty()) return condition + (s.position.empty() ? "before its first operation" : "in " + s.position);
  if (s.state == State::kWaiting) return condition + "in " + s.operation;
  return str(condition, s.position.empty() ? "" : "in " + s.position + ", ", "after ", s.operation);
}

std::string ranks_of(const std::vector<Standing>& table, const Indices& indices) {
  std::vector<int> ranks;
  for (const size_t i : indices)
    ranks.push_back(table[i].rank);
  std::sort(ranks.begin(), ranks.end());
  return rank_list(ranks);
}

constexpr size_t kMostCulprits = 4;

std::string culprits_text(const std::vector<Standing>& table, const Blame& blame) {
  std::string out;
  for (size_t n = 0; n < std::min(blame.culprits.size(), kMostCulprits); ++n) {
    const Standing& s = table[blame.culprits[n]];
    const bool is_stuck = blame.kind == Blame::Kind::kStuck;
    out += str(n == 0 ? "" : "; ", name_of(s), is_stuck ? " has not moved for " : " has waited ", seconds_text(s.still),
               is_stuck ? ": " : " ", place_of(s));
  }
  const size_t others = blame.culprits.size() - std::min(blame.culprits.size(), kMostCulprits);
  return others == 0 ? out : str(out, "; and ", others, " others");
}

std::string waiters_text(const std::vector<Standing>& table, const Blame& blame) {
  if (blame.waiters.empty()) return "";
  const Standing& longest = table[blame.waiters.front()];
  const size_t count = blame.waiters.size();
  return str(count, count == 1 ? " rank waits" : " ranks wait", blame.culprits.size() > 1 ? " for them" : " for it",
             " (", ranks_of(table, blame.waiters), "), rank ", longest.rank, " for ", seconds_text(longest.still),
             " in ", longest.operation);
}

// "n1 and n2, n1 and n3".
std::string links_text(const std::set<NodePair>& pairs) {
  std::string out;
  for (const auto& [a, b] : pairs) {
    if (a > b && pairs.contains({b, a})) continue;
    out += str(out.empty() ? "" : ", ", std::min(a, b), " and ", std::max(a, b));
  }
  return out;
}

std::string unknown_text(const std::vector<Standing>& table, const Blame& blame) {
  const Standing& longest = table[blame.waiters.front()];
  const size_t count = blame.waiters.size();
  const std::string all = count == 1 ? "" : str("; ", count, " ranks wait (", ranks_of(table, blame.waiters), ")");
  return str(name_of(longest), " has waited ", seconds_text(longest.still), " for ", longest.operation, all,
             "; none of those that are known has stopped");
}

}  // namespace

std::string to_text(const std::vector<Standing>& standings) {
  std::string out;
  for (const Standing& standing : standings)
    out += line_of(standing) + "\n";
  return out;
}

std::vector<Standing> standings_of(const std::string& text) {
  std::vector<Standing> standings;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Fields fields(line);
    Standing standing = standing_of(fields);
    if (!fields.is_whole()) return {};
    standings.push_back(std::move(standing));
  }
  return standings;
}

Blame find_blame(const std::vector<Standing>& table, double limit) {
  return Judge(table, limit).blame();
}

std::string blame_text(const std::vector<Standing>& table, const Blame& blame, const std::string& remark) {
  std::string text;
  if (blame.kind == Blame::Kind::kUnknown) {
    text = unknown_text(table, blame);
  } else {
    const std::string waiters = waiters_text(table, blame);
    text = culprits_text(table, blame) + (waiters.empty() ? "" : "; " + waiters);
    if (blame.kind == Blame::Kind::kApart) {
      text += "; they are in operations that do not belong together";
      if (!broken_pairs(table, blame.culprits).empty())
        text += ", or the network between their nodes brings no messages";
    } else if (blame.kind == Blame::Kind::kUndelivered) {
      text += str("; all of its ranks run and have begun it, but messages between ",
                  links_text(broken_pairs(table, blame.culprits)), " do not get through: look at the network");
    }
  }
  return str("vit_hybrid: ", text, remark.empty() ? "" : "; " + remark);
}

}  // namespace vit_hybrid::comm
