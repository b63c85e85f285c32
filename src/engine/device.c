#include "engine/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool device_choose(const char *want, const struct engine_backend *cpu,
                   const struct engine_backend *cuda, struct device_choice *out, struct error *err)
{
    *out = (struct device_choice){.backend = cpu};
    if (strcmp(want, "cpu") == 0)
        return true;
    bool is_auto = strcmp(want, "auto") == 0;
    if (!is_auto && strcmp(want, "cuda") != 0) {
        char *end = NULL;
        long index = strncmp(want, "cuda:", 5) == 0 ? strtol(want + 5, &end, 10) : -1;
        if (index < 0 || index > 1023 || end == want + 5 || *end)
            return error_set(err, ERR_USAGE,
                             "--device: found \"%.60s\", expected auto, cuda, cuda:N or cpu", want);
        out->index = (int)index;
    }
    if (!cuda)
        return is_auto ||
               error_set(
                   err, ERR_FAIL,
                   "--device %s: this hokku was built without CUDA; --device cpu runs without it",
                   want);
    char why[256] = "";
    int n = cuda->count(why, sizeof why);
    if (n > out->index) {
        out->backend = cuda;
        return true;
    }
    if (is_auto) {
        snprintf(out->note, sizeof out->note, "no usable CUDA device (%s): running on the CPU",
                 why);
        return true;
    }
    if (n > 0)
        return error_set(err, ERR_FAIL, "--device %s: found %d CUDA device%s, numbered from 0",
                         want, n, n == 1 ? "" : "s");
    return error_set(err, ERR_FAIL,
                     "--device %s: no usable CUDA device: %s; --device cpu runs without one", want,
                     why);
}
