/* A library that NVTX loads into a program as it would a profiler's (NVTX_INJECTION64_PATH): it writes each range of
 * the domain "vit_hybrid" to the file that VIT_HYBRID_TEST_RANGES names, with the rank behind it: "THREAD > NAME" where
 * it begins, "THREAD <" where it ends. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE* ranges;
static int domain;

static nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  return strcmp(name, "vit_hybrid") == 0 ? (nvtxDomainHandle_t)&domain : NULL;
}

static int NVTX_API push(nvtxDomainHandle_t of, const nvtxEventAttributes_t* range) {
  if (of == (nvtxDomainHandle_t)&domain)
    fprintf(ranges, "%lx > %s\n", (unsigned long)pthread_self(), range->message.ascii);
  return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t of) {
  if (of == (nvtxDomainHandle_t)&domain) fprintf(ranges, "%lx <\n", (unsigned long)pthread_self());
  return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  char path[4096];
  if (rank == NULL) rank = getenv("PMI_RANK");
  snprintf(path, sizeof(path), "%s.%s", getenv("VIT_HYBRID_TEST_RANGES"), rank == NULL ? "0" : rank);
  ranges = fopen(path, "w");
  const NvtxExportTableCallbacks* callbacks = (const NvtxExportTableCallbacks*)get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  if (ranges == NULL || callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainRangePop) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
