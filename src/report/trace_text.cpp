// Rows, lanes, and one line of JSON an event.
#include "src/report/trace_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "src/base/json.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

using trace::Event;
using trace::Kind;

constexpr const char* kCompute = "compute";
// Rows in their order; those of other axes stand behind the communication that is known here.
constexpr std::array kRows = {kCompute,
                              "communication tensor",
                              "communication pipeline",
                              "communication data",
                              "communication shard",
                              "communication replica",
                              "communication world",
                              "data wait",
                              "reading",
                              "checkpoint",
                              "GPU compute",
                              "GPU communication tensor",
                              "GPU communication pipeline",
                              "GPU communication data",
                              "GPU communication shard",
                              "GPU communication replica",
                              "GPU communication world"};

std::string row_of(const Event& event) {
  if (event.on_device) {
    return event.kind == Kind::kOperation ? str("GPU communication ", event.axis) : "GPU compute";
  }
  switch (event.kind) {
    case Kind::kOperation:
      return str("communication ", event.axis);
    case Kind::kInput:
      return "data wait";
    case Kind::kRead:
      return "reading";
    case Kind::kCheckpoint:
      return "checkpoint";
    default:
      return kCompute;
  }
}

const char* category(Kind kind) {
  switch (kind) {
    case Kind::kStep:
      return "step";
    case Kind::kPhase:
      return "phase";
    case Kind::kOperation:
      return "operation";
    case Kind::kWait:
      return "wait";
    case Kind::kInput:
    case Kind::kRead:
      return "input";
    case Kind::kCheckpoint:
      return "checkpoint";
    case Kind::kSend:
    case Kind::kReceive:
      return "message";
  }
  return "";
}

bool is_message(const Event& event) {
  return event.kind == Kind::kSend || event.kind == Kind::kReceive;
}

// The format counts microseconds; three decimals keep the nanoseconds.
std::string microseconds(int64_t nanoseconds) {
  const int64_t size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
  const std::string decimals = std::to_string(1000 + size % 1000).substr(1);
  return str(nanoseconds < 0 ? "-" : "", size / 1000, ".", decimals);
}

// Slices of one row side by side: each goes into the first lane in which it crosses none.
class Lanes {
 public:
  /// Whether slices of a lane may lie in each other: calls do; of operations in flight none is part of another.
  explicit Lanes(bool may_nest) : may_nest_(may_nest) {}

  /// Slices come by their begin, an outer one before those in it.
  size_t place(int64_t begin, int64_t end) {
    for (size_t lane = 0;; ++lane) {
      if (lane == open_.size()) open_.emplace_back();
      std::vector<int64_t>& ends = open_[lane];
      while (!ends.empty() && ends.back() <= begin)
        ends.pop_back();
      if (ends.empty() || (may_nest_ && end <= ends.back())) {
        ends.push_back(end);
        return lane;
      }
    }
  }
  size_t size() const { return open_.size(); }

 private:
  bool may_nest_;
  std::vector<std::vector<int64_t>> open_;  // by lane: ends of the slices that are open, outer ones first
};

struct Placed {
  const Event* event;
  int64_t begin;  // of the file
  int64_t end;
  int row_of_file = 0;
};

class Writer {
 public:
  explicit Writer(const RankTrace& trace) : trace_(trace) {}

  std::string text() {
    name_process();
    collect();
    for (auto& [place, row] : rows_) {
      write_row(place.second, row);
    }
    write_arrows();
    return std::move(out_);
  }

 private:
  using Row = std::vector<Placed>;
  using OperationKey = std::pair<std::string_view, uint64_t>;  // axis and number

  void add(const Json& event) {
    out_ += event.dump();
    out_ += ",\n";
  }

  void add_name(const char* what, int row, Json args) {
    add({{"ph", "M"}, {"pid", trace_.rank}, {"tid", row}, {"name", what}, {"args", std::move(args)}});
  }

  void name_process() {
    const mesh::Coordinate at = trace_.dims.coordinate(trace_.rank);
    std::string name = str("rank ", trace_.rank, " on ", trace_.host, ":");
    for (const mesh::Axis axis : mesh::kAxes) {
      name += str(" ", mesh::axis_option(axis), " ", mesh::on(at, axis));
    }
    add_name("process_name", 0, {{"name", name}});
    add_name("process_sort_index", 0, {{"sort_index", trace_.rank}});
  }

  // What ended last comes first: of slices with the same times the outer one.
  void collect() {
    for (auto event = trace_.events.rbegin(); event != trace_.events.rend(); ++event) {
      if (is_message(*event)) continue;
      const std::string row = row_of(*event);
      const auto known = std::find(kRows.begin(), kRows.end(), row);
      rows_[{known - kRows.begin(), row}].push_back({&*event, trace_.shown(event->begin), trace_.shown(event->end)});
    }
    for (const Event& event : trace_.events) {
      if (is_message(event)) messages_[{event.axis, event.number}].push_back(&event);
    }
  }

  void write_row(const std::string& name, Row& row) {
    std::stable_sort(row.begin(), row.end(), [](const Placed& a, const Placed& b) {
      return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end);
    });
    Lanes lanes(name.find("communication") == std::string::npos);
    for (Placed& slice : row) {
      const size_t lane = lanes.place(slice.begin, slice.end);
      slice.row_of_file = num_rows_ + static_cast<int>(lane);
      write_slice(slice);
    }
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const int number = num_rows_++;
      add_name("thread_name", number, {{"name", lane == 0 ? name : str(name, " ", lane + 1)}});
      add_name("thread_sort_index", number, {{"sort_index", number}});
    }
  }

  void write_slice(const Placed& slice) {
    const Event& event = *slice.event;
    out_ +=
        str(R"({"ph":"X","pid":)", trace_.rank, R"(,"tid":)", slice.row_of_file, R"(,"ts":)", microseconds(slice.begin),
            R"(,"dur":)", microseconds(slice.end - slice.begin), R"(,"name":)", Json(trace::slice_name(event)).dump(),
            R"(,"cat":")", category(event.kind), R"(","args":)", args_of(event).dump(), "},\n");
    // Rows of the GPU come last: arrows are between what GPUs do where that is known.
    if (event.kind == Kind::kOperation) operations_[{event.axis, event.number}] = slice;
  }

  Json args_of(const Event& event) const {
    Json args = Json::object();
    if (event.step >= 0) args["step"] = event.step;
    if (event.micro_batch >= 0) args["micro_batch"] = event.micro_batch;
    if (event.stage >= 0) args["stage"] = event.stage;
    if (*event.axis != '\0') {
      args["axis"] = event.axis;
      args["operation"] = event.name;
      args["bytes"] = event.bytes;
      if (event.number > 0) args["number"] = event.number;
      args["group"] = group_of(event.axis);
    }
    if (event.kind == Kind::kOperation) add_messages(event, args);
    return args;
  }

  // The lowest rank of the group of this rank over an axis, which with the axis names the group.
  int group_of(std::string_view axis) const {
    for (const mesh::Group known : mesh::kGroups) {
      if (axis == mesh::group_name(known)) return trace_.dims.members(trace_.rank, known).front();
    }
    return 0;
  }

  void add_messages(const Event& event, Json& args) const {
    const auto found = messages_.find({event.axis, event.number});
    if (found == messages_.end()) return;
    for (const Event* const message : found->second) {
      const bool sends = message->kind == Kind::kSend;
      args[sends ? "sends" : "receives"].push_back({{sends ? "to" : "from", message->peer}, {"bytes", message->bytes}});
    }
  }

  // Messages of two ranks in one direction come in the order in which they are sent: both know the number of each.
  void write_arrows() {
    std::map<std::pair<int, int>, int64_t> counts;
    for (const Event& event : trace_.events) {
      if (!is_message(event)) continue;
      const bool sends = event.kind == Kind::kSend;
      const int from = sends ? trace_.rank : event.peer;
      const int to = sends ? event.peer : trace_.rank;
      const int64_t pair = int64_t{from} * trace_.dims.size() + to;
      const int64_t id = (pair << kCountBits) + counts[{from, to}]++;
      if (const auto found = operations_.find({event.axis, event.number}); found != operations_.end()) {
        write_arrow_end(found->second, sends, id);
      }
    }
  }

  // Viewers tie an end to the slice that is open then; at the time of its end it is not.
  void write_arrow_end(const Placed& exchange, bool sends, int64_t id) {
    const int64_t time = sends ? exchange.begin : std::max(exchange.begin, exchange.end - 1);
    out_ += str(R"({"ph":")", sends ? "s" : "f", R"(",)", sends ? "" : R"("bp":"e",)", R"("pid":)", trace_.rank,
                R"(,"tid":)", exchange.row_of_file, R"(,"ts":)", microseconds(time), R"(,"id":)", id,
                R"(,"name":"message","cat":"message"},)", "\n");
  }

  static constexpr int kCountBits = 24;  // with the pairs of 16,384 ranks within the 53 bits of a viewer's numbers

  const RankTrace& trace_;
  std::map<std::pair<std::ptrdiff_t, std::string>, Row> rows_;  // by place and name
  std::map<OperationKey, std::vector<const Event*>> messages_;
  std::map<OperationKey, Placed> operations_;
  int num_rows_ = 0;
  std::string out_;
};

}  // namespace

std::string trace_text(const RankTrace& trace) {
  return Writer(trace).text();
}

}  // namespace vit_hybrid::train
