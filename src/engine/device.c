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
    int end = is_auto || n <= out->index ? n : out->index + 1; // auto: the first that can be used
    for (int i = out->index; i < end; i++)
        if (!cuda->usable || cuda->usable(i, why, sizeof why)) {
            out->backend = cuda;
            out->index = i;
            return true;
        }
    if (is_auto) {
        out->no_gpu = n == 0;
        snprintf(out->note, sizeof out->note, "%s: running on the CPU",
                 out->no_gpu ? "no NVIDIA GPU" : why);
        return true;
    }
    if (n > 0 && out->index >= n)
        return error_set(err, ERR_FAIL, "--device %s: found %d CUDA device%s, numbered from 0",
                         want, n, n == 1 ? "" : "s");
    return error_set(err, ERR_FAIL, "--device %s: %s; --device cpu runs without a GPU", want, why);
}
