// The device's clocks: the current ones from the driver's management library where it can be
// loaded, else the largest that the runtime knows of.
#include <dlfcn.h>
#include <stdio.h>

#include "engine_impl.h"

// Of nvml.h, which not every toolkit installs.
typedef void *nvml_device;
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_bus)(const char *bus, nvml_device *out);
    int (*clock)(nvml_device d, int what, unsigned *mhz);
};

static bool find(const struct nvml *n, const char *name, void *function)
{
    return (*(void **)function = dlsym(n->library, name)) != NULL;
}

static bool clocks_by_nvml(int device, uint32_t *sm, uint32_t *memory)
{
    struct nvml n = {};
    nvml_device d = NULL;
    char bus[32] = "";
    bool ok = false;
    n.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n.library)
        return false;
    if (find(&n, "nvmlInit_v2", &n.init) && find(&n, "nvmlShutdown", &n.shutdown) &&
        find(&n, "nvmlDeviceGetHandleByPciBusId_v2", &n.by_bus) &&
        find(&n, "nvmlDeviceGetClockInfo", &n.clock) && n.init() == 0) {
        unsigned s = 0, m = 0;
        ok = cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess &&
             n.by_bus(bus, &d) == 0 && n.clock(d, NVML_CLOCK_SM, &s) == 0 &&
             n.clock(d, NVML_CLOCK_MEMORY, &m) == 0;
        *sm = s;
        *memory = m;
        n.shutdown();
    }
    (void)cudaGetLastError();
    dlclose(n.library);
    return ok;
}

void cuda_clocks(int device, struct engine_peaks *out)
{
    int sm_khz = 0, memory_khz = 0;
    bool maxima =
        cudaDeviceGetAttribute(&sm_khz, cudaDevAttrClockRate, device) == cudaSuccess &&
        cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, device) == cudaSuccess;
    (void)cudaGetLastError();
    char most[60] = "";
    if (maxima)
        snprintf(most, sizeof most, "; at most %d and %d", sm_khz / 1000, memory_khz / 1000);
    if (clocks_by_nvml(device, &out->sm_mhz, &out->memory_mhz)) {
        snprintf(out->clocks_how, sizeof out->clocks_how, "NVML, while the device copied%s", most);
    } else if (maxima) {
        out->sm_mhz = (uint32_t)(sm_khz / 1000);
        out->memory_mhz = (uint32_t)(memory_khz / 1000);
        snprintf(out->clocks_how, sizeof out->clocks_how,
                 "the most it can run at; NVML, which knows the current ones, did not answer");
    }
}
