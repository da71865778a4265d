// To be preloaded: the thread that gets SIGRTMIN + 3, + 4 or + 5 sleeps, loops, or blocks in a read, and never comes
// back: what a main thread does that hangs, at any moment of a program that knows nothing of it.
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static void sleep_for_ever(int number) {
  (void)number;
  for (;;) sleep(1000);
}

static void loop_for_ever(int number) {
  (void)number;
  for (volatile unsigned long count = 0;; ++count) {
  }
}

static void read_for_ever(int number) {
  (void)number;
  int ends[2];
  char byte;
  if (pipe(ends) != 0) return;
  while (read(ends[0], &byte, 1) < 0) {
  }
}

__attribute__((constructor)) static void install(void) {
  void (*const handlers[])(int) = {sleep_for_ever, loop_for_ever, read_for_ever};
  for (int i = 0; i < 3; ++i) {
    struct sigaction action = {0};
    action.sa_handler = handlers[i];
    sigaction(SIGRTMIN + 3 + i, &action, NULL);
  }
}
