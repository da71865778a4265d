/* A preloaded library for tests of clocks: the monotonic clock of one rank is ahead of the others', as
 * VIT_HYBRID_TEST_CLOCK says: "RANK NANOSECONDS PPM"; PPM: parts in a million by which it also runs faster, from the
 * first time it is asked. What waits until a time of that clock waits as long as before, and a little. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "own_rank.h"

static struct {
  int (*original)(clockid_t, struct timespec*);
  long long ahead; /* nanoseconds */
  double per_nanosecond;
  long long start;
} clock_of_rank;

static long long nanoseconds(const struct timespec* time) {
  return time->tv_sec * 1000000000LL + time->tv_nsec;
}

__attribute__((constructor)) static void read_environment(void) {
  clock_of_rank.original = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const char* text = getenv("VIT_HYBRID_TEST_CLOCK");
  int rank = -1;
  long long ahead = 0;
  double ppm = 0;
  if (text == NULL || sscanf(text, "%d %lld %lf", &rank, &ahead, &ppm) != 3 || rank != own_rank()) return;
  struct timespec now;
  clock_of_rank.original(CLOCK_MONOTONIC, &now);
  clock_of_rank.start = nanoseconds(&now);
  clock_of_rank.ahead = ahead;
  clock_of_rank.per_nanosecond = ppm * 1e-6;
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const int result = clock_of_rank.original(clock, time);
  if (clock != CLOCK_MONOTONIC || result != 0 || clock_of_rank.ahead == 0) return result;
  const long long real = nanoseconds(time);
  const double drift = (double)(real - clock_of_rank.start) * clock_of_rank.per_nanosecond;
  const long long shown = real + clock_of_rank.ahead + (long long)drift;
  time->tv_sec = shown / 1000000000LL;
  time->tv_nsec = shown % 1000000000LL;
  return result;
}
