/* A preloaded library for tests: once the file that VIT_HYBRID_TEST_NO_THREADS_AFTER names is there, no thread is
 * started any more, as where the system's limit on them is reached. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef int Create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  const char* mark = getenv("VIT_HYBRID_TEST_NO_THREADS_AFTER");
  if (mark != NULL && access(mark, F_OK) == 0) return EAGAIN;
  Create* next = (Create*)dlsym(RTLD_NEXT, "pthread_create");
  return next(thread, attributes, start, argument);
}
