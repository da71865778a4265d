// Signals that ask the program to stop at the next good moment.
#pragma once

#include <string>
#include <vector>

namespace vit_hybrid {

/// Numbers of signals by name: "USR1", "sigterm"; known are USR1, USR2, TERM and INT. Text with commas between the
/// names. Throws Error(kUsage) for another name.
std::vector<int> parse_signals(const std::string& names);

/// "SIGTERM"; "signal 7" for one that parse_signals() does not know.
std::string signal_name(int signal);

/// From now on these signals (what batch systems send before the time is up) only set a flag, and others of the four
/// do what they do by default. A second SIGINT or SIGTERM ends the process at once.
void watch_stop_signals(const std::vector<int>& signals);

/// The first step begins: from now on a run that is asked to stop has something to save.
void begin_first_step();

/// SIGINT or SIGTERM, if it has arrived before begin_first_step(), else 0: there is nothing to save, and the program is
/// to end at once.
int signal_before_first_step();

/// Signals are for the main thread, but for those that a crash of this thread sends to it.
void block_signals_in_this_thread();

/// The first of those signals that has arrived, or 0. Ranks learn of them at different times: to be agreed on.
int stop_signal();

}  // namespace vit_hybrid
