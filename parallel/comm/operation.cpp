// Operation: names, the position of the run, and the text of a note.
#include "parallel/comm/operation.h"

#include <array>
#include <atomic>

#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {
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
}

PhaseScope::PhaseScope(const char* phase) : previous_(g_phase.exchange(phase)) {}

PhaseScope::~PhaseScope() {
  g_phase = previous_;
}

std::string RunPosition::text() const {
  const std::string step_text = step < 0 ? "" : str("step ", step);
  return str(step_text, step_text.empty() || *phase == '\0' ? "" : ", ", phase);
}

std::string OperationNote::text() const {
  std::string out = operation;
  if (sequence > 0) out += str(" number ", sequence);
  out += str(" on axis '", axis, "', ", bytes, " bytes");
  const std::string where = position.text();
  return where.empty() ? out : str(out, ", in ", where);
}

}  // namespace vit_hybrid::comm
