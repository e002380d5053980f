/* Stands in for one of CUDA's libraries as far as `pipewright devices` asks it. */
#include <stdlib.h>
#include <string.h>

#ifdef ABORTS
__attribute__((constructor)) static void loaded(void) { abort(); }
#endif

#ifdef DRIVER
int cuDriverGetVersion(int *version) { *version = DRIVER; return 0; }
int cuInit(unsigned flags) { (void)flags; return INIT; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int room, int device) { (void)device; strncpy(name, "Stand-in", room); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = (size_t)16 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? MAJOR : 0;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = 0; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = (size_t)12 << 30; *total = (size_t)16 << 30; return 0; }
int cuGetErrorName(int error, const char **name) { (void)error; *name = "CUDA_ERROR"; return 0; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "refused"; return 0; }
#endif

#ifdef NVRTC
int nvrtcVersion(int *major, int *minor) { *major = NVRTC; *minor = 0; return 0; }
#endif

#ifdef CUBLASLT
size_t cublasLtGetVersion(void) { return CUBLASLT; }
#endif

#ifdef NCCL
int ncclGetVersion(int *version) { *version = NCCL; return 0; }
#endif
