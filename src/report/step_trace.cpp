// A rank's slices as rows of Chrome's trace format; begin and end of the recording, and the file of rank 0.
#include "src/report/step_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "parallel/comm/host_task.h"
#include "parallel/comm/nccl/device_marks.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/host.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/trace.h"
#include "src/base/version.h"
#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

namespace {

constexpr int kFewestRounds = 20;
constexpr int64_t kGoodWidth = 4'000;            // nanoseconds: what messages between two nodes take there and back
constexpr int64_t kPatience = 20'000;            // times the width of a round, for which a shorter one is looked for
constexpr int64_t kMostOfARank = 2'000'000'000;  // nanoseconds of rounds, where they are slow
constexpr int64_t kMostOfAll = 8'000'000'000;    // of all ranks together
constexpr int64_t kMostOfOneClock = 20'000'000;  // where the system says that the two are one
constexpr int64_t kLeastOfARank = 1'000'000;

// While the two ranks measure they do not sleep: what wakes late would answer late.
class Awake {
 public:
  Awake() : before_(comm::Waiting::set_manner(comm::Waiting::Manner::kYield)) {}
  ~Awake() { comm::Waiting::set_manner(before_); }
  Awake(const Awake&) = delete;
  Awake& operator=(const Awake&) = delete;

 private:
  comm::Waiting::Manner before_;
};

enum class ClockQuestion : int64_t { kTime, kNone };

// A message there and back: two times of rank 0's clock, and between them one of the other's.
struct Round {
  int64_t asked = 0;
  int64_t answer = 0;
  int64_t arrived = std::numeric_limits<int64_t>::max();

  int64_t width() const { return arrived - asked; }
};

void send_question(const comm::MpiGroup& group, int rank, ClockQuestion question) {
  group.send(&question, sizeof question, rank);
}

// The shortest of some. On a busy machine most take as long as the others' turns of the core, and one in a hundred what
// its messages take: until one is good, or short beside the time spent.
Round ask(const comm::MpiGroup& group, int rank) {
  bool is_one_clock = false;
  group.receive(&is_one_clock, sizeof is_one_clock, rank);
  const int64_t limit =
      is_one_clock ? kMostOfOneClock : std::clamp(kMostOfAll / group.size(), kLeastOfARank, kMostOfARank);
  const Awake awake;
  const int64_t start = trace::now();
  Round best;
  for (int rounds = 0;; ++rounds) {
    Round round;
    round.asked = trace::now();
    const int64_t spent = round.asked - start;
    const bool is_good = rounds >= kFewestRounds && best.width() <= std::max(kGoodWidth, spent / kPatience);
    if (is_good || (rounds > 0 && spent > limit)) break;
    send_question(group, rank, ClockQuestion::kTime);
    group.receive(&round.answer, sizeof round.answer, rank);
    round.arrived = trace::now();
    if (round.width() < best.width()) best = round;
  }
  send_question(group, rank, ClockQuestion::kNone);
  return best;
}

void answer(const comm::MpiGroup& group) {
  for (std::optional<Awake> awake;;) {
    ClockQuestion question{};
    group.receive(&question, sizeof question, 0);
    const int64_t own = trace::now();
    if (question == ClockQuestion::kNone) return;
    if (!awake) awake.emplace();
    group.send(&own, sizeof own, 0);
  }
}

// Processes that have this in common read one clock: the boot of their kernel, and their time namespace. Empty where
// that is not told.
std::string clock_name() {
  const std::string boot = system_text("/proc/sys/kernel/random/boot_id");
  std::error_code error;  // of kernels before 5.6, which have no time namespaces
  return boot.empty() ? "" : boot + std::filesystem::read_symlink("/proc/self/ns/time", error).string();
}

}  // namespace

ClockOffset offset_between(int64_t least, int64_t most, int64_t at, bool is_one_clock) {
  if (least <= 0 && 0 <= most) {
    return {at, 0, is_one_clock ? 0 : std::max(-least, most)};
  }
  const int64_t width = most - least;
  return {at, least + width / 2, (width + 1) / 2};
}

ClockOffset measure_clock_offset(const comm::MpiGroup& group) {
  const std::string of_rank_0 = group.broadcast(clock_name(), 0);
  if (group.rank() == 0) {
    for (int rank = 1; rank < group.size(); ++rank) {
      const Round best = ask(group, rank);
      group.send(&best, sizeof best, rank);
    }
    return {trace::now(), 0, 0};
  }
  const bool is_one_clock = !of_rank_0.empty() && of_rank_0 == clock_name();
  group.send(&is_one_clock, sizeof is_one_clock, 0);
  Round best;
  answer(group);
  group.receive(&best, sizeof best, 0);
  return offset_between(best.answer - best.arrived, best.answer - best.asked, best.answer, is_one_clock);
}

int64_t ClockAlignment::on_rank_0(int64_t own) const {
  return own - first_.offset - std::llround(drift() * 1e-9 * static_cast<double>(own - first_.at));
}

int64_t ClockAlignment::error() const {
  return std::max(first_.error, last_.error);
}

double ClockAlignment::drift() const {
  const int64_t between = last_.at - first_.at;
  return between <= 0 ? 0.0 : static_cast<double>(last_.offset - first_.offset) / static_cast<double>(between) * 1e9;
}

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
    case Kind::kCopy:
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

// Slices of one row side by side: each goes into the first track in which it crosses none.
class Tracks {
 public:
  /// Whether slices of a track may lie in each other: calls do; of operations in flight none is part of another.
  explicit Tracks(bool may_nest) : may_nest_(may_nest) {}

  /// Slices come by their begin, an outer one before those in it.
  size_t place(int64_t begin, int64_t end) {
    for (size_t track = 0;; ++track) {
      if (track == open_.size()) open_.emplace_back();
      std::vector<int64_t>& ends = open_[track];
      while (!ends.empty() && ends.back() <= begin)
        ends.pop_back();
      if (ends.empty() || (may_nest_ && end <= ends.back())) {
        ends.push_back(end);
        return track;
      }
    }
  }
  size_t size() const { return open_.size(); }

 private:
  bool may_nest_;
  std::vector<std::vector<int64_t>> open_;  // by track: ends of the slices that are open, outer ones first
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
    Tracks tracks(name.find("communication") == std::string::npos);
    for (Placed& slice : row) {
      const size_t track = tracks.place(slice.begin, slice.end);
      slice.row_of_file = num_rows_ + static_cast<int>(track);
      write_slice(slice);
    }
    for (size_t track = 0; track < tracks.size(); ++track) {
      const int number = num_rows_++;
      add_name("thread_name", number, {{"name", track == 0 ? name : str(name, " ", track + 1)}});
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
    const auto group = mesh::group_named(axis);
    return group ? trace_.dims.members(trace_.rank, *group).front() : 0;
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

namespace {

constexpr size_t kMostEvents = size_t{1} << 18;  // a rank: 20 MiB, and some 60 MB of the file
constexpr const char* kHostTimes =
    "rows of the GPU are by its own events; the others are the host's: when work was asked for, not when it ran";

// What rank 0 tells of one rank.
struct RankNote {
  int64_t text_bytes = 0;
  int64_t num_events = 0;
  int64_t num_dropped = 0;
  int64_t clock_offset = 0;  // nanoseconds
  int64_t clock_error = 0;
  double clock_drift = 0.0;  // nanoseconds a second
};

double error_us(const std::vector<RankNote>& notes) {
  int64_t most = 0;
  for (const RankNote& note : notes) {
    most = std::max(most, note.clock_error);
  }
  return static_cast<double>(most) / 1e3;
}

Json clock_json(int rank, const RankNote& note) {
  return {{"rank", rank},
          {"offset_us", static_cast<double>(note.clock_offset) / 1e3},
          {"error_us", static_cast<double>(note.clock_error) / 1e3},
          {"drift_us_per_s", note.clock_drift / 1e3}};
}

Json layout_json(const mesh::ParallelDims& dims) {
  Json layout = {{"ranks", dims.size()}};
  for (const mesh::Axis axis : mesh::kAxes) {
    layout[std::string(mesh::axis_option(axis))] = dims.degree(axis);
  }
  return layout;
}

// Where a trace is and what it holds, beside its slices.
Json description(const options::StepRange& steps, const mesh::DeviceMesh& mesh, const std::vector<RankNote>& notes) {
  Json other = {{"program", "vit_hybrid " + project_version()},
                {"steps", {steps.first, steps.last}},
                {"layout", layout_json(mesh.dims())},
                {"device", mesh.device().str()}};
  if (!mesh.device().is_cpu()) {
    other["device_times"] = kHostTimes;
  }
  int64_t dropped = 0;
  Json& clocks = other["clocks"] = {{"reference", "monotonic clock of rank 0"}, {"error_us", error_us(notes)}};
  for (size_t rank = 0; rank < notes.size(); ++rank) {
    clocks["ranks"].push_back(clock_json(static_cast<int>(rank), notes[rank]));
    dropped += notes[rank].num_dropped;
  }
  other["dropped_events"] = dropped;
  return other;
}

// The texts of all ranks in their order, of which rank 0 holds one at a time. Where it cannot write, the others are
// still rid of theirs.
class TraceFile {
 public:
  TraceFile(std::string path, const comm::MpiGroup& world) : path_(std::move(path)), world_(world) {}

  /// Returns the size in bytes; throws what stood in the way when all ranks have been heard.
  int64_t write(const Json& description, const std::string& own, const std::vector<RankNote>& notes) {
    attempt([&] { file_.emplace(path_); });
    put(str(R"({"displayTimeUnit":"ms","otherData":)", description.dump(), ",\n\"traceEvents\":[\n"));
    for (size_t rank = 0; rank < notes.size(); ++rank) {
      std::string text = rank == 0 ? own : receive(notes[rank], static_cast<int>(rank));
      if (rank + 1 == notes.size()) {
        text.resize(text.size() - 2);  // the last element has no comma
      }
      put(text);
    }
    put("\n]}\n");
    attempt([&] { file_->finish(); });
    if (problem_) {
      throw Error(*problem_);
    }
    return bytes_;
  }

 private:
  template <class Function>
  void attempt(Function function) {
    if (problem_) {
      return;
    }
    try {
      function();
    } catch (const Error& error) {
      problem_ = error;
    }
  }

  void put(const std::string& text) {
    attempt([&] { file_->write(text); });
    bytes_ += std::ssize(text);
  }

  std::string receive(const RankNote& note, int rank) const {
    std::string text(static_cast<size_t>(note.text_bytes), ' ');
    world_.receive(text.data(), note.text_bytes, rank);
    return text;
  }

  std::string path_;
  const comm::MpiGroup& world_;
  std::optional<WholeFile> file_;
  std::optional<Error> problem_;
  int64_t bytes_ = 0;
};

void warn_of_dropped(const std::vector<RankNote>& notes) {
  for (size_t rank = 0; rank < notes.size(); ++rank) {
    if (notes[rank].num_dropped > 0) {
      log_warning(str("the trace lacks the last ", notes[rank].num_dropped, " events of rank ", rank, ", which keeps ",
                      kMostEvents, "; trace fewer steps"));
      return;
    }
  }
}

// By rank 0.
void write_file(const std::string& what, const options::StepRange& steps, const std::string& own,
                const std::vector<RankNote>& notes, const std::string& path, const mesh::DeviceMesh& mesh,
                const comm::MpiGroup& world) {
  const Json described = description(steps, mesh, notes);
  try {
    const int64_t bytes = TraceFile(path, world).write(described, own, notes);
    int64_t events = 0;
    for (const RankNote& note : notes) {
      events += note.num_events;
    }
    log_line(str(what, ": ", path, ", ", events, " events of ", counted(notes.size(), "rank"), ", ", bytes_text(bytes),
                 notes.size() < 2        ? ""
                 : error_us(notes) > 0.0 ? str("; clocks agree within ", fixed_text(error_us(notes), 1), " us")
                                         : "; all of one clock"));
  } catch (const Error& error) {
    log_warning(str("the ", what, " is lost, and training goes on: ", error.message()));
  }
  warn_of_dropped(notes);
}

}  // namespace

StepTrace::StepTrace(const options::StepRange& steps, const mesh::DeviceMesh& mesh, const comm::MpiGroup& world,
                     std::string path)
    : StepWindow(steps, "--trace steps=" + steps.text(), "trace"), mesh_(mesh), world_(world), path_(std::move(path)) {}

void StepTrace::begin() {
  first_offset_ = measure_clock_offset(world_);
  zero_ = trace::now();
  world_.broadcast(&zero_, sizeof zero_, 0);
  trace::start_recording(kMostEvents, comm::device_marks(mesh_.device()));
}

void StepTrace::end(int64_t last) {
  trace::Recording recording = trace::stop_recording();
  const ClockAlignment clock(first_offset_, measure_clock_offset(world_));
  RankNote note;
  note.num_events = std::ssize(recording.events);
  note.num_dropped = recording.num_dropped;
  note.clock_offset = first_offset_.offset;
  note.clock_error = clock.error();
  note.clock_drift = clock.drift();
  const std::string text =
      trace_text({world_.rank(), host_name(), mesh_.dims(), std::move(recording.events), [&](int64_t own) {
                    // All began to record behind that moment, whatever their clocks say.
                    return std::max<int64_t>(0, clock.on_rank_0(own) - zero_);
                  }});
  note.text_bytes = std::ssize(text);
  if (world_.rank() != 0) {
    world_.send(&note, sizeof note, 0);
    world_.send(text.data(), note.text_bytes, 0);
    return;
  }
  std::vector<RankNote> notes(static_cast<size_t>(world_.size()), note);
  for (int rank = 1; rank < world_.size(); ++rank) {
    world_.receive(&notes[static_cast<size_t>(rank)], sizeof note, rank);
  }
  write_file(title(last), {first(), last}, text, notes, path_, mesh_, world_);
}

}  // namespace vit_hybrid::train
