/* A driver's library libnvidia-ml.so.1 with four GPUs, of which 0000:01:00.0 alone can be asked, for a program that it
 * is loaded before (LD_PRELOAD). Its energy rises by 2.5 J with each reading, and its other figures stand still. */
#include <string.h>

struct utilisation {
  unsigned gpu;
  unsigned memory;
};
struct memory {
  unsigned long long total, free, used;
};

static int device;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned* count);
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** handle);
int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules);
int nvmlDeviceGetUtilizationRates(void* handle, struct utilisation* now);
int nvmlDeviceGetMemoryInfo(void* handle, struct memory* now);

int nvmlInit_v2(void) {
  return 0;
}

int nvmlShutdown(void) {
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 4;
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** handle) {
  *handle = &device;
  return strcmp(address, "0000:01:00.0") == 0 ? 0 : 6; /* NVML_ERROR_NOT_FOUND */
}

int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  static unsigned long long counted = 1000000;
  *millijoules = counted += 2500;
  return handle == &device ? 0 : 2;
}

int nvmlDeviceGetUtilizationRates(void* handle, struct utilisation* now) {
  now->gpu = 93;
  now->memory = 41;
  return handle == &device ? 0 : 2;
}

int nvmlDeviceGetMemoryInfo(void* handle, struct memory* now) {
  now->total = 80ull << 30;
  now->used = 30ull << 30;
  now->free = now->total - now->used;
  return handle == &device ? 0 : 2;
}
