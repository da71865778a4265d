/* The rank of this process, for libraries that are preloaded into it: as its launcher says, before MPI is there. */
#pragma once

#include <stdlib.h>

static inline int own_rank(void) {
  const char* names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    const char* text = getenv(names[i]);
    if (text != NULL) return atoi(text);
  }
  return 0;
}
