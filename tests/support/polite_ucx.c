/* A preloaded library for tests under an MPI library over UCX (Debian's MPICH): a rank that polls UCX in vain gives its
 * core away. Such a library spins in its blocking calls, those inside HDF5 and MPI-IO too, and has no setting against it;
 * where 8 ranks share 2 cores, a test of one minute then takes many. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void* worker);

unsigned ucp_worker_progress(void* worker) {
  static unsigned (*progress)(void*);
  if (!progress) progress = (unsigned (*)(void*))dlsym(RTLD_NEXT, "ucp_worker_progress");
  const unsigned num_events = progress(worker);
  if (num_events == 0) sched_yield();
  return num_events;
}
