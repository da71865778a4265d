// Begin and end of the recording, and the file that rank 0 writes of the texts of all.
#include "src/report/step_trace.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/comm/nccl/device_marks.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/host.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/version.h"
#include "src/report/metrics_log.h"
#include "src/report/trace_text.h"

namespace vit_hybrid::train {

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
Json description(const StepRange& steps, const mesh::DeviceMesh& mesh, const std::vector<RankNote>& notes) {
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
void write_file(const std::string& what, const StepRange& steps, const std::string& own,
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
                 notes.size() > 1 ? str("; clocks agree within ", fixed_text(error_us(notes), 1), " us") : ""));
  } catch (const Error& error) {
    log_warning(str("the ", what, " is lost, and training goes on: ", error.message()));
  }
  warn_of_dropped(notes);
}

}  // namespace

StepTrace::StepTrace(const StepRange& steps, const mesh::DeviceMesh& mesh, const comm::MpiGroup& world,
                     std::string path)
    : StepWindow(steps, "--trace steps=" + steps.text(), "trace"), mesh_(mesh), world_(world), path_(std::move(path)) {}

void StepTrace::begin() {
  first_offset_ = comm::measure_clock_offset(world_);
  zero_ = trace::now();
  world_.broadcast(&zero_, sizeof zero_, 0);
  trace::start_recording(kMostEvents, comm::device_marks(mesh_.device()));
}

void StepTrace::end(int64_t last) {
  trace::Recording recording = trace::stop_recording();
  const comm::ClockAlignment clock(first_offset_, comm::measure_clock_offset(world_));
  RankNote note;
  note.num_events = std::ssize(recording.events);
  note.num_dropped = recording.num_dropped;
  note.clock_offset = first_offset_.offset;
  note.clock_error = clock.error();
  note.clock_drift = clock.drift();
  const std::string text = trace_text({world_.rank(), host_name(), mesh_.dims(), std::move(recording.events),
                                       [&](int64_t own) { return clock.on_rank_0(own) - zero_; }});
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
