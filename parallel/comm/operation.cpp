// Operation: names, the position of the run, and the text of a note.
#include "parallel/comm/operation.h"

#include <array>
#include <atomic>
#include <utility>

#include "parallel/comm/node_board.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {
std::atomic<uint64_t> g_work_of_helpers{0};
std::atomic<int64_t> g_step{-1};
std::atomic<const char*> g_phase{""};
}  // namespace

std::string_view operation_name(Operation operation) {
  constexpr std::array<std::string_view, kNumOperations> kNames = {"all_reduce", "reduce_scatter", "all_gather",
                                                                   "broadcast",  "exchange",       "barrier"};
  return kNames.at(static_cast<size_t>(operation));
}

RunPosition run_position() {
  return {g_step.load(), g_phase.load()};
}

void set_step(int64_t step) {
  g_step = step;
  show_position(run_position());
}

void note_work() {
  if (is_main_thread()) {
    own_slot().move();
  } else {
    g_work_of_helpers.fetch_add(1, std::memory_order_relaxed);
  }
}

void note_work_of_helpers() {
  static uint64_t known = 0;
  if (!is_main_thread()) return;
  const uint64_t now = g_work_of_helpers.load(std::memory_order_relaxed);
  if (std::exchange(known, now) != now) own_slot().move();
}

PhaseScope::PhaseScope(const char* phase) : previous_(g_phase.exchange(phase)) {
  show_position(run_position());
}

PhaseScope::~PhaseScope() {
  g_phase = previous_;
  show_position(run_position());
}

std::string RunPosition::text() const {
  const std::string step_text = step < 0 ? "" : str("step ", step);
  return str(step_text, step_text.empty() || *phase == '\0' ? "" : ", ", phase);
}

std::string OperationNote::text() const {
  std::string out = operation;
  if (sequence > 0) out += str(" number ", sequence);
  if (!axis.empty()) out += str(" on axis '", axis, "', ", bytes, " bytes");
  const std::string where = position.text();
  return where.empty() ? out : str(out, ", in ", where);
}

}  // namespace vit_hybrid::comm
