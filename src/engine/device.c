#include "engine/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"

// The index that "auto", "cuda" or "cuda:N" says.
static bool read_want(const char *want, struct device_choice *out, struct error *err)
{
    out->index = 0;
    if (strcmp(want, "auto") == 0 || strcmp(want, "cuda") == 0)
        return true;
    const bool named = strncmp(want, "cuda:", 5) == 0 && decimal_whole(want + 5);
    const long index = named ? strtol(want + 5, NULL, 10) : -1;
    if (index < 0 || index > 1023)
        return error_set(err, ERR_USAGE,
                         "--device: found \"%.60s\", expected auto, cuda, cuda:N or cpu", want);
    out->index = (int)index;
    return true;
}

bool device_choose(const char *want, const struct engine_backend *cpu,
                   const struct engine_backend *cuda, struct device_choice *out, struct error *err)
{
    *out = (struct device_choice){.backend = cpu};
    if (strcmp(want, "cpu") == 0)
        return true;
    const bool is_auto = strcmp(want, "auto") == 0;
    if (!read_want(want, out, err))
        return false;
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

void device_begin(const char *want, const struct engine_backend *cuda)
{
    struct device_choice d;
    struct error ignored = {0}; // told by device_choose
    if (cuda && cuda->begin && strcmp(want, "cpu") != 0 && read_want(want, &d, &ignored))
        cuda->begin(d.index);
}

static bool bad_devices(const char *want, struct error *err)
{
    return error_set(err, ERR_USAGE,
                     "--devices: found \"%.60s\", expected all, or 1 to %d different numbers of "
                     "GPUs as 0,1",
                     want, MODEL_MAX_RANKS);
}

bool devices_parse(const char *want, uint32_t *out, struct error *err)
{
    const char *p = want;
    *out = 0;
    for (;; p++) {
        char *end;
        const long i = strtol(p, &end, 10);
        if (*p < '0' || *p > '9' || i > 31 || *out >> i & 1)
            return bad_devices(want, err);
        *out |= 1u << i;
        p = end;
        if (*p != ',')
            break;
    }
    return !*p || bad_devices(want, err);
}

bool devices_choose(const char *want, const struct engine_backend *cuda, struct device_choice *out,
                    struct error *err)
{
    char why[256] = "";
    uint32_t devices = 0;
    const bool all = strcmp(want, "all") == 0;
    if (!all && !devices_parse(want, &devices, err))
        return false;
    if (!cuda)
        return error_set(err, ERR_FAIL,
                         "--devices %s: this hokku was built without CUDA; --device cpu runs "
                         "without it",
                         want);
    const int n = cuda->count(why, sizeof why);
    if (n <= 0)
        return error_set(err, ERR_FAIL, "--devices %s: %s; --device cpu runs without a GPU", want,
                         why);
    if (all)
        devices = n >= 32 ? UINT32_MAX : (1u << n) - 1;
    if (__builtin_popcount(devices) > MODEL_MAX_RANKS)
        return error_set(err, ERR_USAGE,
                         "--devices %s: %d devices, expected at most %d: name those to use", want,
                         __builtin_popcount(devices), MODEL_MAX_RANKS);
    *out = (struct device_choice){.backend = cuda, .index = __builtin_ctz(devices)};
    for (int i = 0; i < 32; i++) {
        if (!(devices >> i & 1))
            continue;
        if (i >= n)
            return error_set(err, ERR_FAIL, "--devices %s: found %d CUDA device%s, numbered from 0",
                             want, n, n == 1 ? "" : "s");
        if (cuda->usable && !cuda->usable(i, why, sizeof why))
            return error_set(err, ERR_FAIL, "--devices %s: device %d: %s", want, i, why);
    }
    if (devices & (devices - 1))
        out->devices = devices;
    return true;
}
