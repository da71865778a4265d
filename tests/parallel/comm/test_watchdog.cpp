// Blame: who keeps the others waiting, on tables made by hand; the line that says so; and the board it is read from.
#include <doctest/doctest.h>

#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/node_board.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/standing.h"
#include "parallel/comm/watchdog.h"
#include "src/base/text.h"

using namespace vit_hybrid::comm;

namespace {

constexpr double kLimit = 2.0;
constexpr uint64_t kWorld = 10;
constexpr uint64_t kOther = 20;

Standing process(int rank) {
  Standing s;
  s.rank = rank;
  s.pid = 100 + rank;
  s.host = "n1";
  return s;
}

// Has waited for 2.5 s, and looks; in turn `turn` of the group.
Standing waiting(int rank, uint64_t group, uint64_t turn, int group_size) {
  Standing s = process(rank);
  s.state = Standing::State::kWaiting;
  s.still = 2.5;
  s.silent = 0.1;
  s.operation = "all_reduce number " + std::to_string(turn) + " on axis 'data', 64 bytes";
  s.group = group;
  s.turn = turn;
  s.group_size = group_size;
  s.turns = {{group, turn, group}};
  return s;
}

// Waits for messages of those ranks, in a pipeline of four.
Standing receiving(int rank, std::vector<int> from) {
  Standing s = waiting(rank, kWorld, 0, 4);
  s.operation = "exchange number 7 on axis 'pipeline', 64 bytes";
  s.awaits = std::move(from);
  return s;
}

// Has done nothing for 2.5 s, after that turn.
Standing stuck(int rank, uint64_t group, uint64_t turn) {
  Standing s = process(rank);
  s.still = 2.5;
  s.position = "step 12, backward";
  s.operation = "all_reduce number 3 on axis 'tensor', 64 bytes";
  s.turns = {{group, turn, group}};
  return s;
}

Standing moving(int rank, uint64_t group, uint64_t turn) {
  Standing s = stuck(rank, group, turn);
  s.still = 0.3;
  return s;
}

Standing stopped(Standing s) {
  s.is_halted = true;
  s.silent = s.still;
  s.condition = "stopped by a signal";
  return s;
}

struct Verdict {
  Blame::Kind kind;
  std::vector<int> culprits;
  std::vector<int> waiters;
  bool operator==(const Verdict&) const = default;
};

Verdict verdict(const std::vector<Standing>& table) {
  const Blame blame = find_blame(table, kLimit);
  Verdict out{blame.kind, {}, {}};
  for (const size_t i : blame.culprits)
    out.culprits.push_back(table[i].rank);
  for (const size_t i : blame.waiters)
    out.waiters.push_back(table[i].rank);
  return out;
}

constexpr auto kNone = Blame::Kind::kNone;
constexpr auto kStuck = Blame::Kind::kStuck;
constexpr auto kApart = Blame::Kind::kApart;
constexpr auto kUnknown = Blame::Kind::kUnknown;
constexpr auto kUndelivered = Blame::Kind::kUndelivered;

}  // namespace

TEST_CASE("blame: the rank that has not begun a collective") {
  const std::vector<Standing> table = {waiting(0, kWorld, 5, 3), stuck(1, kWorld, 4), waiting(2, kWorld, 5, 3)};
  CHECK(verdict(table) == Verdict{kStuck, {1}, {0, 2}});
}

TEST_CASE("blame: nobody, as long as the one that the others wait for comes further") {
  CHECK(verdict({waiting(0, kWorld, 5, 3), moving(1, kWorld, 4), waiting(2, kWorld, 5, 3)}) == Verdict{kNone, {}, {}});
  // Nor while it comes further at the far end of a chain, or nobody has waited for the limit.
  CHECK(verdict({receiving(0, {1}), receiving(1, {2}), moving(2, kWorld, 0)}) == Verdict{kNone, {}, {}});
  Standing late = waiting(0, kWorld, 5, 2);
  late.still = 1.0;
  CHECK(verdict({late, stuck(1, kWorld, 4)}) == Verdict{kNone, {}, {}});
  CHECK(verdict({stuck(0, kWorld, 4), stuck(1, kWorld, 4)}) == Verdict{kNone, {}, {}});
  CHECK(verdict({}) == Verdict{kNone, {}, {}});
}

TEST_CASE("blame: a chain leads to its root, not to the next victim") {
  // 1 x 1 x 4: each stage waits for the next one, the last is stopped while it waits itself.
  CHECK(verdict({receiving(0, {1}), receiving(1, {2}), receiving(2, {3}), stopped(receiving(3, {2}))}) ==
        Verdict{kStuck, {3}, {0, 1, 2}});
  // A rank of another group waits for one of the chain.
  CHECK(verdict({waiting(4, kOther, 3, 2),
                 [] {
                   Standing s = receiving(0, {1});
                   s.turns = {{kOther, 2, kOther}, {kWorld, 0, kWorld}};
                   return s;
                 }(),
                 stuck(1, kWorld, 0)}) == Verdict{kStuck, {1}, {4, 0}});
}

TEST_CASE("blame: who is stopped inside of a wait, or does not look any more, does not wait") {
  CHECK(verdict({waiting(0, kWorld, 5, 3), stopped(waiting(1, kWorld, 5, 3)), waiting(2, kWorld, 5, 3)}) ==
        Verdict{kStuck, {1}, {0, 2}});
  Standing silent = waiting(1, kWorld, 5, 2);
  silent.silent = 2.4;
  CHECK(verdict({waiting(0, kWorld, 5, 2), silent}) == Verdict{kStuck, {1}, {0}});
}

TEST_CASE("blame: where nobody is seen to run, those that do not wait; nobody, as long as one comes further") {
  // Rank 1 was stopped while it held a lock of the library, in which rank 0 spins.
  Standing spinning = waiting(0, kWorld, 5, 2);
  spinning.silent = 2.4;
  CHECK(verdict({spinning, stuck(1, kWorld, 4)}) == Verdict{kStuck, {1}, {0}});
  CHECK(verdict({spinning, stopped(waiting(1, kWorld, 5, 2))}) == Verdict{kStuck, {1}, {0}});
  CHECK(verdict({spinning, moving(1, kWorld, 4)}) == Verdict{kNone, {}, {}});
  CHECK(verdict({stopped(waiting(0, kWorld, 5, 2)), stuck(1, kWorld, 4)}) == Verdict{kNone, {}, {}});
  Standing other = spinning;
  other.rank = 1;
  CHECK(verdict({spinning, other}) == Verdict{kStuck, {0, 1}, {}});
}

TEST_CASE("blame: inside of a library the one that uses no processor where the others do") {
  std::vector<Standing> table;
  for (int rank = 0; rank < 3; ++rank) {
    table.push_back(waiting(rank, kWorld, 1, 3));
    table.back().is_blind = true;
    table.back().silent = 2.5;
  }
  CHECK(verdict(table) == Verdict{kUnknown, {}, {0, 1, 2}});
  table[1].is_idle = true;
  CHECK(verdict(table) == Verdict{kStuck, {1}, {0, 2}});
  for (Standing& s : table)
    s.is_idle = true;
  CHECK(verdict(table) == Verdict{kUnknown, {}, {0, 1, 2}});
  for (Standing& s : table)
    s.is_idle = false;
  table[2].is_restless = true;
  CHECK(verdict(table) == Verdict{kStuck, {2}, {0, 1}});
  for (Standing& s : table)
    s.is_restless = true;
  CHECK(verdict(table) == Verdict{kUnknown, {}, {0, 1, 2}});
}

TEST_CASE("blame: where all are idle inside of a library, the one that is blocked in another call of the system") {
  const auto ending = [](int rank, const std::string& system_call) {
    Standing s = waiting(rank, kLaunchGroup, 2, 3);
    s.is_blind = true;
    s.is_idle = true;
    s.system_call = system_call;
    return s;
  };
  CHECK(verdict({ending(0, "202"), ending(1, "0"), ending(2, "202")}) == Verdict{kStuck, {1}, {0, 2}});
  CHECK(verdict({ending(0, "202"), ending(1, "202"), ending(2, "202")}).kind != kStuck);
  CHECK(verdict({ending(0, "202"), ending(1, "0"), ending(2, "")}).kind != kStuck);
}

TEST_CASE("blame: all wait, and one of them elsewhere") {
  // Rank 2 left out turn 5 of the world, and waits for rank 3 in another group.
  Standing elsewhere = waiting(2, kOther, 9, 2);
  elsewhere.turns = {{kWorld, 4, kWorld}, {kOther, 9, kOther}};
  Standing partner = waiting(3, kWorld, 5, 4);
  partner.turns = {{kWorld, 5, kWorld}, {kOther, 8, kOther}};
  CHECK(verdict({waiting(0, kWorld, 5, 4), waiting(1, kWorld, 5, 4), elsewhere, partner}) ==
        Verdict{kApart, {2}, {0, 1, 3}});
  elsewhere.host = "n2";  // it has not begun that turn: no message of it is on its way
  CHECK(verdict({waiting(0, kWorld, 5, 4), waiting(1, kWorld, 5, 4), elsewhere, partner}) ==
        Verdict{kApart, {2}, {0, 1, 3}});
  // Of two, the one that is further in the run; where both are as far, nobody can say which.
  Standing first = waiting(0, kWorld, 5, 2);
  first.turns = {{kWorld, 5, kWorld}, {kOther, 8, kOther}};
  Standing second = waiting(1, kOther, 9, 2);
  second.turns = {{kWorld, 4, kWorld}, {kOther, 9, kOther}};
  CHECK(verdict({first, second}) == Verdict{kApart, {0, 1}, {}});
  first.step = 12;
  second.step = 13;
  CHECK(verdict({first, second}) == Verdict{kApart, {1}, {0}});
}

TEST_CASE("blame: the one that left a collective out, though all wait for its partner") {
  // Ranks 0 and 1, and 2 and 3, are tensor groups. Rank 1 left turn 9 of its own out: rank 0 waits there for it, the
  // others in the world for rank 0.
  constexpr uint64_t kPair = 30;
  constexpr uint64_t kTensor = 7;
  const auto at_world = [&](int rank, uint64_t pair, uint64_t turn) {
    Standing s = waiting(rank, kWorld, 5, 4);
    s.turns.push_back({pair, turn, kTensor});
    return s;
  };
  Standing partner = waiting(0, kPair, 9, 2);
  partner.turns = {{kWorld, 4, kWorld}, {kPair, 9, kTensor}};
  CHECK(verdict({partner, at_world(1, kPair, 8), at_world(2, kOther, 9), at_world(3, kOther, 9)}) ==
        Verdict{kApart, {1}, {0, 2, 3}});
}

TEST_CASE("blame: the one that makes another collective than the others in its turn") {
  constexpr uint64_t kBarrier = 1;
  constexpr uint64_t kAgreement = 2;
  const auto made = [](int rank, uint64_t turn, uint64_t last, uint64_t before) {
    Standing s = waiting(rank, kWorld, turn, 3);
    s.turns[0].made = last;
    s.turns[0].made_before = before;
    return s;
  };
  const Standing odd = made(0, 5, kBarrier, kBarrier);
  const Standing agreeing = made(1, 5, kAgreement, kBarrier);
  CHECK(verdict({odd, agreeing, made(2, 5, kAgreement, kBarrier)}) == Verdict{kApart, {0}, {1, 2}});
  // MPI took the barrier for the agreement: rank 2 is in the next one.
  CHECK(verdict({odd, agreeing, made(2, 6, kBarrier, kAgreement)}) == Verdict{kApart, {0}, {1, 2}});
}

TEST_CASE("blame: the network, where a node lacks messages of a collective that all have begun") {
  // Leaders 0 and 2 of two nodes; rank 1 has what node n2 sent it, and is in the next collective.
  Standing ahead = waiting(0, kWorld, 6, 3);
  ahead.awaits = {2};
  Standing beside = waiting(1, kWorld, 6, 3);
  beside.awaits = {0};
  Standing lacking = waiting(2, kWorld, 5, 3);
  lacking.host = "n2";
  lacking.awaits = {0};
  const auto of_four = [](Standing s) {
    s.group_size = 4;
    s.turn = s.turns[0].turn = 5;
    return s;
  };
  const std::vector<Standing> table = {ahead, beside, lacking};
  CHECK(verdict(table) == Verdict{kUndelivered, {2}, {0, 1}});
  const std::string text = blame_text(table, find_blame(table, kLimit), "");
  CHECK_MESSAGE(text.find("rank 2 on n2 (process 102) has waited 2.5 s in all_reduce number 5") != std::string::npos,
                text);
  CHECK_MESSAGE(text.find("messages between n1 and n2 do not get through: look at the network") != std::string::npos,
                text);
  // A third node, that waits for both, is no end of their link.
  Standing third = waiting(3, kWorld, 5, 4);
  third.host = "n3";
  third.awaits = {0, 2};
  CHECK(verdict({of_four(ahead), of_four(beside), of_four(lacking), third}) == Verdict{kUndelivered, {0, 2}, {1, 3}});
  // On one node no network is between them.
  lacking.host = "n1";
  CHECK(verdict({ahead, beside, lacking}).kind == kApart);
  lacking.host = "n2";
  // Nor while the one who has what the others need does not run.
  CHECK(verdict({stopped(ahead), beside, lacking}) == Verdict{kStuck, {0}, {1, 2}});
}

TEST_CASE("blame: what another node's rank waits for is heard, though it is overdue a moment later") {
  // Rank 0 left the agreement of all three out and is in the barrier of its node, with rank 1.
  constexpr uint64_t kNode = 30;
  Standing odd = waiting(0, kNode, 9, 2);
  odd.turns = {{kWorld, 4, kWorld}, {kNode, 9, kNode}};
  Standing agreeing = waiting(1, kWorld, 5, 3);
  agreeing.turns.push_back({kNode, 8, kNode});
  Standing witness = waiting(2, kWorld, 5, 3);
  CHECK(verdict({odd, agreeing, witness}) == Verdict{kApart, {0}, {1, 2}});
  witness.still = 1.9;
  CHECK(verdict({odd, agreeing, witness}) == Verdict{kNone, {}, {}});
}

TEST_CASE("blame: the last one in MPI_Finalize, whose others have come through it") {
  Standing last = waiting(0, kLaunchGroup, 2, 3);
  last.is_blind = true;
  const auto ended = [](int rank) {
    Standing s = process(rank);
    s.state = Standing::State::kEnded;
    s.turns = {{kLaunchGroup, 2}};
    return s;
  };
  CHECK(verdict({last, ended(1), ended(2)}) == Verdict{kStuck, {0}, {}});
  // With one that is not known, or another that is still there and waits likewise, it may be that one.
  CHECK(verdict({last, ended(1)}).kind == kUnknown);
  Standing other = waiting(2, kLaunchGroup, 2, 3);
  other.is_blind = true;
  CHECK(verdict({last, ended(1), other}).kind == kUnknown);
  // Who has ended is nobody whom others wait for, and no standstill's culprit.
  CHECK(verdict({receiving(0, {1}), ended(1)}).kind == kUnknown);
}

TEST_CASE("blame: a ring of waits without anybody who does not wait") {
  CHECK(verdict({receiving(0, {1}), receiving(1, {2}), receiving(2, {3}), receiving(3, {0})}).kind == kApart);
}

TEST_CASE("blame: two culprits, the one whom more wait for first") {
  std::vector<Standing> table = {waiting(0, kWorld, 5, 3), waiting(1, kWorld, 5, 3), stuck(2, kWorld, 4),
                                 waiting(3, kOther, 2, 2), stuck(4, kOther, 1)};
  CHECK(verdict(table) == Verdict{kStuck, {2, 4}, {0, 1, 3}});
  // One that nobody waits for is not told.
  table.pop_back();
  table.pop_back();
  table.push_back(stuck(7, kOther, 1));
  CHECK(verdict(table) == Verdict{kStuck, {2}, {0, 1}});
}

TEST_CASE("blame: a launched process that has not come to its start") {
  Standing absent;
  absent.rank = 1;
  absent.state = Standing::State::kAbsent;
  absent.still = 2.5;
  absent.turns = {{kLaunchGroup, 0, 0}};
  Standing starting = waiting(0, kLaunchGroup, 1, 2);
  starting.is_blind = true;
  CHECK(verdict({starting, absent}) == Verdict{kStuck, {1}, {0}});
}

TEST_CASE("blame: ranks that are in no table") {
  // Rank 2 of three is on a node that does not answer.
  CHECK(verdict({waiting(0, kWorld, 5, 3), waiting(1, kWorld, 5, 3)}) == Verdict{kUnknown, {}, {0, 1}});
}

TEST_CASE("blame: ranks that do not answer, where nobody else can be meant") {
  Standing mute = process(2);
  mute.state = Standing::State::kMute;
  mute.still = 2.5;
  CHECK(verdict({waiting(0, kWorld, 5, 3), waiting(1, kWorld, 5, 3), mute}) == Verdict{kStuck, {2}, {0, 1}});
  CHECK(verdict({waiting(0, kWorld, 5, 2), moving(1, kWorld, 4), mute}) == Verdict{kNone, {}, {}});
  CHECK(verdict({waiting(0, kWorld, 5, 2), stuck(1, kWorld, 4), mute}) == Verdict{kStuck, {1}, {0}});
  const std::vector<Standing> table = {waiting(0, kWorld, 5, 2), mute};
  CHECK(blame_text(table, find_blame(table, kLimit), "") ==
        "vit_hybrid: rank 2 on n1 (process 102) has not moved for 2.5 s: it does not answer over TCP, stopped or on a "
        "machine that hangs; 1 rank waits for it (rank 0), rank 0 for 2.5 s in all_reduce number 5 on axis 'data', 64 "
        "bytes");
}

TEST_CASE("blame: a wait without a group is for whoever does not wait") {
  Standing lone = waiting(0, 0, 0, 0);
  CHECK(verdict({lone, stuck(1, kWorld, 4)}) == Verdict{kStuck, {1}, {0}});
  CHECK(verdict({lone, moving(1, kWorld, 4)}) == Verdict{kNone, {}, {}});
}

TEST_CASE("blame: the line names world rank, host, process, phase, operation and those who wait") {
  std::vector<Standing> table = {waiting(0, kWorld, 5, 3), stuck(1, kWorld, 4), waiting(2, kWorld, 5, 3)};
  CHECK(
      blame_text(table, find_blame(table, kLimit), "") ==
      "vit_hybrid: rank 1 on n1 (process 101) has not moved for 2.5 s: in step 12, backward, after all_reduce number 3 "
      "on axis 'tensor', 64 bytes; 2 ranks wait for it (ranks 0 and 2), rank 0 for 2.5 s in all_reduce number 5 on "
      "axis 'data', 64 bytes");
  table[1] = stopped(waiting(1, kWorld, 5, 3));
  table.pop_back();
  CHECK(
      blame_text(table, find_blame(table, kLimit), "n2 (rank 2) did not answer") ==
      "vit_hybrid: rank 1 on n1 (process 101) has not moved for 2.5 s: stopped by a signal, in all_reduce number 5 on "
      "axis 'data', 64 bytes; 1 rank waits for it (rank 0), rank 0 for 2.5 s in all_reduce number 5 on axis 'data', 64 "
      "bytes; n2 (rank 2) did not answer");
  table[1] = waiting(1, kWorld, 5, 3);
  CHECK(blame_text(table, find_blame(table, kLimit), "n2 (rank 2) did not answer") ==
        "vit_hybrid: rank 0 on n1 (process 100) has waited 2.5 s for all_reduce number 5 on axis 'data', 64 bytes; 2 "
        "ranks wait (ranks 0 and 1); none of those that are known has stopped; n2 (rank 2) did not answer");
}

TEST_CASE("standing: between nodes as a text") {
  Standing full = stopped(waiting(3, kWorld, 5, 4));
  full.awaits = {1, 2};
  full.turns.push_back({kOther, 7, 3});
  full.position = "step 1, a\tphase\n";
  std::vector<Standing> table = {full, stuck(0, kWorld, 1), process(1)};
  const std::string text = to_text(table);
  table[0].position = "step 1, a phase ";
  CHECK((standings_of(text) == table));  // a vector of them has no text
  CHECK(standings_of("").empty());
  // What is cut, or is no such text, is nothing; and never more than what it says.
  for (size_t size = 1; size < text.size(); ++size) {
    CHECK(standings_of(text.substr(0, size)).size() <= table.size());
  }
  CHECK(standings_of("3\t4\tn1\n").empty());
  CHECK(standings_of("x\n").empty());
}

TEST_CASE("board: what a thread that is not the main one waits for is found in the table") {
  CHECK_FALSE(pending_operation());
  const OperationNote first{"data", "reduce_scatter", 64, 3, {}};
  const OperationNote second{"tensor", "all_reduce", 32, 4, {}};
  {
    const BlockedScope outer(first);
    const BlockedScope inner(second);
    REQUIRE(pending_operation());
    CHECK(pending_operation()->note.axis == "data");
  }
  CHECK_FALSE(pending_operation());
}

TEST_CASE("board: a device operation is pending while its probe says that it runs, and a failed one comes first") {
  DeviceStatus status;
  const DeviceOperation first({"model", "broadcast", 8, 1, {}}, [] { return DeviceStatus(); });
  const DeviceOperation operation({"model", "all_gather", 8, 1, {}}, [&] { return status; });
  REQUIRE(pending_operation());
  CHECK(pending_operation()->note.operation == "broadcast");
  status = {DeviceStatus::Kind::kFailed, "the peer is gone", Cause::kLostPeer};
  REQUIRE(pending_operation());
  CHECK(pending_operation()->failed);
  CHECK(pending_operation()->error == "the peer is gone");
  CHECK(pending_operation()->cause == Cause::kLostPeer);
  status.kind = DeviceStatus::Kind::kComplete;
  CHECK(pending_operation()->note.operation == "broadcast");
}

TEST_CASE("board: who has come further since the last look has not stood still for as long as that") {
  BoardSlot& slot = own_slot();
  slot.state.set(BoardSlot::State::kRunning);
  BoardObserver observer;
  observer.look(1.0, 10.0);
  observer.look(1.0, 10.0);
  CHECK(observer.standings("n1").at(0).still >= 1.0);
  slot.move();
  CHECK(observer.standings("n1").at(0).still == 0.0);
  slot.state.set(BoardSlot::State::kEnded);
  CHECK((observer.standings("n1").at(0).state == Standing::State::kEnded));
  slot.state.set(BoardSlot::State::kFree);
  CHECK(observer.standings("n1").empty());
}

TEST_CASE("board: a wait as others read it") {
  BoardWait wait;
  CHECK(wait.text({}).empty());
  wait.show({"tensor", "all_reduce", 4096, 17, {}, 5, 9}, WaitManner::kLooking);
  CHECK(wait.text({12, "backward"}) == "all_reduce number 17 on axis 'tensor', 4096 bytes, in step 12, backward");
  wait.show_awaited({3, 1});
  CHECK(wait.awaited_ranks() == std::vector<int>{3, 1});
  wait.show_awaited(std::vector<int>(100, 4));
  CHECK(wait.awaited_ranks().size() == BoardWait::kMostAwaited);
  // Longer texts are cut.
  wait.show({std::string(100, 'x'), std::string(100, 'y'), 1, 0, {}}, WaitManner::kBlind);
  CHECK(wait.text({}) == vit_hybrid::str(std::string(47, 'y'), " on axis '", std::string(23, 'x'), "', 1 bytes"));
}

TEST_CASE("board: groups of equal ranks have ids of their own, and groups of one rank none") {
  const WatchedGroup one({0, 1, 2});
  const WatchedGroup two({0, 1, 2});
  const WatchedGroup alone({1});
  CHECK(one.id() != two.id());
  CHECK(one.id() > kLaunchGroup);
  CHECK(alone.id() == 0);
  WatchedGroup turning({5, 7});
  CHECK(turning.next_turn("barrier") == 1);
  CHECK(turning.next_turn("barrier") == 2);
  CHECK(turning.to_world({1, 0}) == std::vector<int>{7, 5});
}

TEST_CASE("observer: the clocks count what was seen, and end with every move") {
  BoardObserver observer;
  own_slot().state.set(BoardSlot::State::kRunning);
  own_slot().move();
  observer.look(0.1, kLimit);
  CHECK_FALSE(observer.anybody_waits_longer_than(0.2));
  observer.look(0.3, kLimit);
  CHECK_FALSE(observer.anybody_waits_longer_than(0.2));  // it works
  own_slot().wait.show({"data", "barrier", 0, 1, {}}, WaitManner::kLooking);
  CHECK(observer.anybody_waits_longer_than(0.2));
  REQUIRE(observer.standings("n1").size() == 1);
  CHECK(observer.standings("n1")[0].still == doctest::Approx(0.3));
  CHECK(observer.standings("n1")[0].state == Standing::State::kWaiting);
  own_slot().look();
  observer.look(0.3, kLimit);
  CHECK(observer.standings("n1")[0].still == doctest::Approx(0.6));
  CHECK(observer.standings("n1")[0].silent == doctest::Approx(0.0));
  own_slot().move();
  observer.look(0.3, kLimit);
  CHECK_FALSE(observer.anybody_waits_longer_than(0.2));
  own_slot().wait.manner.set(WaitManner::kNone);
  own_slot().state.set(BoardSlot::State::kFree);
}

TEST_CASE("observer: the condition of a process is read from the system") {
  CHECK(main_thread_condition(getpid()).state != '-');
  CHECK_FALSE(main_thread_condition(getpid()).is_halted());
  CHECK(main_thread_condition(getpid()).run_nanoseconds > 0);
  const uint64_t switches = main_thread_condition(getpid()).num_switches;
  for (int i = 0; i < 20; ++i)
    usleep(100);
  CHECK(main_thread_condition(getpid()).num_switches >= switches + 10);  // a sleep may be over before it begins
  CHECK(main_thread_condition(0x7ffffff0).is_halted());
  CHECK(main_thread_condition(0x7ffffff0).text() == "gone");
}

namespace {

OperationNote note_on(const char* axis) {
  OperationNote note;
  note.axis = axis;
  note.operation = "all_reduce";
  return note;
}

}  // namespace

TEST_CASE("operations: a probe that blocks stops nobody who begins or ends one, and keeps what it looks at") {
  using namespace std::chrono_literals;
  std::promise<void> entered, may_return;
  auto looked_at = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = looked_at;
  std::optional<DeviceOperation> operation;
  operation.emplace(note_on("data"), [&, looked_at, may = may_return.get_future().share()] {
    entered.set_value();
    may.wait();
    return DeviceStatus{*looked_at == 7 ? DeviceStatus::Kind::kRunning : DeviceStatus::Kind::kFailed, "gone"};
  });
  looked_at.reset();
  auto pending = std::async(std::launch::async, [] { return pending_operation(); });
  entered.get_future().wait();
  auto others = std::async(std::launch::async, [&] {
    const DeviceOperation later(note_on("tensor"), [] { return DeviceStatus(); });
    operation.reset();
  });
  CHECK(others.wait_for(10s) == std::future_status::ready);
  CHECK_FALSE(watched.expired());
  may_return.set_value();
  const auto found = pending.get();
  REQUIRE(found.has_value());
  CHECK(found->note.axis == "data");
  CHECK_FALSE(found->failed);
  CHECK(watched.expired());
  CHECK_FALSE(pending_operation().has_value());
}
