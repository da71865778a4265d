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

namespace vit_hybrid {

namespace {

constexpr std::array<std::pair<std::string_view, int>, 4> kSignals = {
    {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"INT", SIGINT}}};

std::atomic<int> g_stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may use lock-free atomics only");

void on_signal(int signal) {
  int none = 0;
  g_stop_signal.compare_exchange_strong(none, signal);
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
    throw Error(ErrorClass::kUsage, str("there is no signal '", given, "' to stop at; allowed: USR1, USR2, TERM, INT"));
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
  for (const int signal : signals) {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    const bool ends_at_second = signal == SIGINT || signal == SIGTERM;
    action.sa_flags = static_cast<int>(ends_at_second ? SA_RESTART | SA_RESETHAND : SA_RESTART);
    sigaction(signal, &action, nullptr);
  }
}

int stop_signal() {
  return g_stop_signal.load();
}

}  // namespace vit_hybrid
