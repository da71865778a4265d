// Signals: a flag set by a handler.
#include "src/base/signals.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <csignal>
#include <sstream>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid {

namespace {

constexpr std::array<std::pair<std::string_view, int>, 4> kSignals = {
    {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"INT", SIGINT}}};

std::atomic<int> g_stop_signal{0};
std::atomic<int> g_final_signal{0};  // which may come after one that is not
std::atomic<bool> g_has_begun{false};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may use lock-free atomics only");

// Those that end a program, where nobody objects.
bool is_final(int signal) {
  return signal == SIGINT || signal == SIGTERM;
}

void on_signal(int signal) {
  int none = 0;
  g_stop_signal.compare_exchange_strong(none, signal);
  none = 0;
  if (is_final(signal)) g_final_signal.compare_exchange_strong(none, signal);
}

int parse_signal(const std::string& given) {
  std::string name;
  for (const char c : given) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  if (name.starts_with("SIG")) {
    name.erase(0, 3);
  }
  const auto found = std::find_if(kSignals.begin(), kSignals.end(), [&](const auto& s) { return s.first == name; });
  if (found == kSignals.end()) {
    throw Error(ErrorClass::kUsage,
                str("there is no signal '", shown(given), "' to stop at; allowed: USR1, USR2, TERM, INT"));
  }
  return found->second;
}

}  // namespace

std::vector<int> parse_signals(const std::string& names) {
  std::vector<int> signals;
  std::istringstream words(names);
  for (std::string word; std::getline(words, word, ',');) {
    signals.push_back(parse_signal(word));
  }
  return signals;
}

std::string signal_name(int signal) {
  const auto found = std::find_if(kSignals.begin(), kSignals.end(), [&](const auto& s) { return s.second == signal; });
  return found == kSignals.end() ? str("signal ", signal) : str("SIG", found->first);
}

void watch_stop_signals(const std::vector<int>& signals) {
  for (const auto& [name, signal] : kSignals) {
    struct sigaction action = {};
    const bool is_watched = std::find(signals.begin(), signals.end(), signal) != signals.end();
    struct sigaction present = {};
    sigaction(signal, nullptr, &present);
    if (!is_watched && present.sa_handler != on_signal) continue;
    action.sa_handler = is_watched ? on_signal : SIG_DFL;
    sigemptyset(&action.sa_mask);
    action.sa_flags = static_cast<int>(is_final(signal) ? SA_RESTART | SA_RESETHAND : SA_RESTART);
    sigaction(signal, &action, nullptr);
  }
}

void begin_first_step() {
  g_has_begun = true;
}

int signal_before_first_step() {
  return g_has_begun ? 0 : g_final_signal.load();
}

void block_signals_in_this_thread() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    sigdelset(&blocked, crash);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

int stop_signal() {
  return g_stop_signal.load();
}

}  // namespace vit_hybrid
