// Signals that ask the program to stop at the next good moment.
#pragma once

namespace vit_hybrid {

/// From now on SIGINT, SIGTERM and SIGUSR1 (what batch systems send before the time is up) only set a flag. A second
/// SIGINT or SIGTERM ends the process at once.
void watch_stop_signals();

/// The first of those signals that has arrived, or 0. Ranks learn of them at different times: to be agreed on.
int stop_signal();

}  // namespace vit_hybrid
