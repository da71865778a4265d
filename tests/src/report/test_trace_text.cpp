// The text of a rank's trace: rows, lanes for what crosses, and the two ends of an arrow.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <utility>

#include "src/base/json.h"
#include "src/report/step_trace.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using trace::Event;
using trace::Kind;

namespace {

// Rank 1 of two stages; the file's times are 1 us less.
Json events_of(std::vector<Event> events, int rank = 1) {
  const RankTrace trace{rank, "n1", mesh::ParallelDims(1, 1, 2), std::move(events),
                        [](int64_t own) { return own - 1000; }};
  std::string text = trace_text(trace);
  REQUIRE(text.ends_with(",\n"));
  return Json::parse("[" + text.substr(0, text.size() - 2) + "]");
}

std::map<int, std::string> rows_of(const Json& events) {
  std::map<int, std::string> rows;
  for (const Json& event : events) {
    if (event["name"] == "thread_name") rows[event["tid"]] = event["args"]["name"];
  }
  return rows;
}

// By name and time: the row, and the duration in microseconds.
std::map<std::pair<std::string, double>, std::pair<std::string, double>> slices_of(const Json& events) {
  const auto rows = rows_of(events);
  std::map<std::pair<std::string, double>, std::pair<std::string, double>> slices;
  for (const Json& event : events) {
    if (event["ph"] == "X") slices[{event["name"], event["ts"]}] = {rows.at(event["tid"]), event["dur"]};
  }
  return slices;
}

Event operation(const char* name, const char* axis, int64_t begin, int64_t end, uint64_t number) {
  return {.kind = Kind::kOperation,
          .name = name,
          .axis = axis,
          .begin = begin,
          .end = end,
          .step = 7,
          .bytes = 64,
          .number = number};
}

}  // namespace

TEST_CASE("trace text: microseconds with three decimals, and a row for each kind of slice") {
  const Json events = events_of({
      {.name = "forward", .begin = 2001, .end = 3500, .micro_batch = 2, .stage = 1},
      {.kind = Kind::kStep, .name = "step", .begin = 1500, .end = 9007, .step = 7},
      operation("all_reduce", "tensor", 2000, 3000, 4),
      {.kind = Kind::kInput, .name = "data wait", .begin = 1000, .end = 1010},
  });
  const auto slices = slices_of(events);
  using Slice = std::pair<std::string, double>;
  CHECK(slices.at({"step 7", 0.5}) == Slice{"compute", 7.507});
  CHECK(slices.at({"forward mb 2", 1.001}) == Slice{"compute", 1.499});
  CHECK(slices.at({"all_reduce tensor", 1.0}) == Slice{"communication tensor", 1.0});
  CHECK(slices.at({"data wait", 0.0}) == Slice{"data wait", 0.01});
  CHECK(events[0]["args"]["name"] == "rank 1 on n1: dp 0 tp 0 pp 1");
}

TEST_CASE("trace text: operations in flight at once have lanes, calls in each other have not") {
  const Json events = events_of({
      operation("reduce_scatter", "data", 2000, 6000, 1),
      operation("reduce_scatter", "data", 3000, 5000, 2),
      operation("reduce_scatter", "data", 5000, 8000, 3),
      {.kind = Kind::kCheckpoint, .name = "checkpoint save", .begin = 1000, .end = 4000},
      {.kind = Kind::kCheckpoint, .name = "checkpoint write", .begin = 2000, .end = 9000},
      {.name = "inner", .begin = 1000, .end = 2000},
      {.name = "outer", .begin = 1000, .end = 2000},
  });
  const auto slices = slices_of(events);
  CHECK(slices.at({"reduce_scatter data", 1.0}).first == "communication data");
  CHECK(slices.at({"reduce_scatter data", 2.0}).first == "communication data 2");  // not inside of the first
  CHECK(slices.at({"reduce_scatter data", 4.0}).first == "communication data 2");
  CHECK(slices.at({"checkpoint save", 0.0}).first == "checkpoint");
  CHECK(slices.at({"checkpoint write", 1.0}).first == "checkpoint 2");
  CHECK(slices.at({"inner", 0.0}).first == "compute");
  CHECK(slices.at({"outer", 0.0}).first == "compute");
  int outer = 0;
  int inner = 0;
  for (int i = 0; i < static_cast<int>(events.size()); ++i) {
    outer = events[static_cast<size_t>(i)]["name"] == "outer" ? i : outer;
    inner = events[static_cast<size_t>(i)]["name"] == "inner" ? i : inner;
  }
  CHECK(outer < inner);
}

TEST_CASE("trace text: what a GPU did has rows of its own, and arrows are between those") {
  Event phase{.name = "forward", .begin = 2500, .end = 3000, .on_device = true};
  Event exchange = operation("exchange", "pipeline", 4000, 7000, 1);
  exchange.on_device = true;
  const Json events = events_of({{.name = "forward", .begin = 2000, .end = 2001},
                                 operation("exchange", "pipeline", 2001, 2002, 1),
                                 {.kind = Kind::kSend, .name = "exchange", .axis = "pipeline", .number = 1, .peer = 0},
                                 phase,
                                 exchange});
  const auto slices = slices_of(events);
  CHECK(slices.at({"forward", 1.0}).first == "compute");
  CHECK(slices.at({"forward", 1.5}) == std::pair<std::string, double>("GPU compute", 0.5));
  CHECK(slices.at({"exchange pipeline", 1.001}).first == "communication pipeline");
  CHECK(slices.at({"exchange pipeline", 3.0}) == std::pair<std::string, double>("GPU communication pipeline", 3.0));
  for (const Json& event : events) {
    if (event["ph"] == "s") CHECK(event["ts"] == 3.0);
  }
}

TEST_CASE("trace text: both ends of an arrow have one number, whichever rank writes them") {
  const auto message = [](Kind kind, int peer, uint64_t number) {
    return Event{.kind = kind, .name = "exchange", .axis = "pipeline", .bytes = 64, .number = number, .peer = peer};
  };
  // Rank 0 sends twice, and its second exchange receives too; of the last exchange the end was not recorded.
  const Json sender = events_of(
      {message(Kind::kSend, 1, 1), operation("exchange", "pipeline", 2000, 3000, 1), message(Kind::kSend, 1, 2),
       message(Kind::kReceive, 1, 2), operation("exchange", "pipeline", 4000, 6000, 2), message(Kind::kSend, 1, 3)},
      0);
  const Json receiver = events_of({message(Kind::kReceive, 0, 1), operation("exchange", "pipeline", 2500, 3500, 1),
                                   message(Kind::kReceive, 0, 2), operation("exchange", "pipeline", 4500, 5500, 2)});
  const auto ends = [](const Json& events, const char* phase) {
    std::vector<std::pair<int64_t, double>> found;
    for (const Json& event : events) {
      if (event["ph"] == phase) found.emplace_back(event["id"], event["ts"]);
    }
    return found;
  };
  const auto starts = ends(sender, "s");
  const auto arrivals = ends(receiver, "f");
  REQUIRE(starts.size() == 2);
  REQUIRE(arrivals.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(starts[i].first == arrivals[i].first);
  }
  CHECK(starts[0].first != starts[1].first);
  CHECK(starts[1].second == 3.0);      // where the exchange begins
  CHECK(arrivals[1].second == 4.499);  // where it still is
  REQUIRE(ends(sender, "f").size() == 1);
  CHECK(ends(sender, "f")[0].first != starts[0].first);  // the other direction
  CHECK(ends(receiver, "s").empty());
}
