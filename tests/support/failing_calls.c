/* A preloaded library for tests of saving: the n-th call of one kind on the files of a run, on one rank, fails with an
 * error, or ends or stops the process, as VIT_HYBRID_TEST_FAULT says: "RANK CALL NUMBER ERROR", for instance
 * "3 write 2 28", where CALL is create, write, sync, rename or remove, and ERROR is an errno, or 0 for SIGKILL before
 * the call, -1 for SIGKILL after it, -2 for SIGSTOP before the call, -3 for SIGSTOP after it. Files count whose path
 * holds "/checkpoints", "/summary.json" or "/trace", but no lock files. VIT_HYBRID_TEST_CALLS names a file that gets a
 * line for each such call: "RANK CALL PATH". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "own_rank.h"

static int counts(const char* path) {
  return path != NULL && strstr(path, "run.lock") == NULL &&
         (strstr(path, "/checkpoints") != NULL || strstr(path, "/summary.json") != NULL ||
          strstr(path, "/trace") != NULL);
}

/* What is to happen, read once. */
static struct {
  int is_read;
  int rank;
  char call[16];
  int number;
  int error;
} fault;

enum { kPass, kFail, kKillAfter, kStopAfter };

static void note(const char* call, const char* path) {
  const char* name = getenv("VIT_HYBRID_TEST_CALLS");
  FILE* file = name == NULL ? NULL : fopen(name, "a");
  if (file != NULL) {
    fprintf(file, "%d %s %s\n", own_rank(), call, path);
    fclose(file);
  }
}

static int due(const char* call, const char* path) {
  if (!fault.is_read) {
    const char* text = getenv("VIT_HYBRID_TEST_FAULT");
    fault.is_read = 1;
    fault.rank = -1;
    if (text != NULL) sscanf(text, "%d %15s %d %d", &fault.rank, fault.call, &fault.number, &fault.error);
  }
  if (!counts(path)) return kPass;
  note(call, path);
  if (fault.rank < 0 || strcmp(call, fault.call) != 0) return kPass;
  if (own_rank() != fault.rank || --fault.number != 0) return kPass;
  if (fault.error == 0) raise(SIGKILL);
  if (fault.error == -2) raise(SIGSTOP);
  if (fault.error < 0) return fault.error == -1 ? kKillAfter : fault.error == -3 ? kStopAfter : kPass;
  errno = fault.error;
  return kFail;
}

static int due_on(const char* call, int descriptor) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length <= 0) return kPass;
  path[length] = '\0';
  return due(call, path);
}

#define ORIGINAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define AROUND(fate, result_type, expression) \
  do {                                        \
    const int what = (fate);                  \
    if (what == kFail) return -1;             \
    const result_type result = (expression);  \
    if (what == kKillAfter) raise(SIGKILL);   \
    if (what == kStopAfter) raise(SIGSTOP);   \
    return result;                            \
  } while (0)

static int opened(const char* name, const char* path, int flags, mode_t mode) {
  int (*original)(const char*, int, ...) = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, name);
  AROUND((flags & O_CREAT) != 0 ? due("create", path) : kPass, int, original(path, flags, mode));
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return opened("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return opened("open64", path, flags, mode);
}

ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  AROUND(due_on("write", descriptor), ssize_t, ORIGINAL(pwrite)(descriptor, bytes, count, offset));
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t count, off64_t offset) {
  AROUND(due_on("write", descriptor), ssize_t, ORIGINAL(pwrite64)(descriptor, bytes, count, offset));
}

int fsync(int descriptor) {
  AROUND(due_on("sync", descriptor), int, ORIGINAL(fsync)(descriptor));
}

int rename(const char* from, const char* to) {
  AROUND(due("rename", from), int, ORIGINAL(rename)(from, to));
}

int remove(const char* path) {
  AROUND(due("remove", path), int, ORIGINAL(remove)(path));
}
