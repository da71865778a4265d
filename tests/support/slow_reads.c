/* To be preloaded: reads of HDF5 files by a rank take longer while there is a file of the name in
 * VIT_HYBRID_TEST_SLOW_READS with "." and the rank behind it: each read as many microseconds as the file says, one after
 * the other, as from a disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "own_rank.h"

static int is_of_hdf5(int descriptor) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 3) return 0;
  path[length] = '\0';
  return strcmp(path + length - 3, ".h5") == 0;
}

static void wait_for_disk(int descriptor) {
  static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;
  const char* name = getenv("VIT_HYBRID_TEST_SLOW_READS");
  char path[4096];
  unsigned microseconds = 0;
  if (name == NULL || !is_of_hdf5(descriptor)) return;
  snprintf(path, sizeof(path), "%s.%d", name, own_rank());
  FILE* file = fopen(path, "r");
  if (file == NULL) return;
  if (fscanf(file, "%u", &microseconds) != 1) microseconds = 0;
  fclose(file);
  pthread_mutex_lock(&disk);
  usleep(microseconds);
  pthread_mutex_unlock(&disk);
}

ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset) {
  wait_for_disk(descriptor);
  return ((__typeof__(&pread))dlsym(RTLD_NEXT, "pread"))(descriptor, bytes, count, offset);
}

ssize_t pread64(int descriptor, void* bytes, size_t count, off64_t offset) {
  wait_for_disk(descriptor);
  return ((__typeof__(&pread64))dlsym(RTLD_NEXT, "pread64"))(descriptor, bytes, count, offset);
}
