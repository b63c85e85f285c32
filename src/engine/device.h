// Which engine runs a model: the choice that --device names.
#ifndef HOKKU_ENGINE_DEVICE_H
#define HOKKU_ENGINE_DEVICE_H

#include "engine/measure.h"

struct engine_backend {
    // Number of devices; 0 when there is none, -1 when there may be some and the driver cannot say:
    // the reason is in why[n]. NULL: always one.
    int (*count)(char *why, size_t n);
    // Whether this program can run on device `index`; if not, why[n] says what the device is, what
    // it would need and what to do. NULL: always.
    bool (*usable)(int index, char *why, size_t n);
    bool (*plan)(const struct model *m, const struct engine_params *p, struct engine_plan *plan,
                 struct error *err);
    struct engine *(*open)(const struct model *m, const struct engine_params *p, struct error *err);
    // Rows for one token decoded with n_past tokens before it, in the order of the forward pass:
    // fills out[0..max) and returns how many there are. No device is needed. NULL: not known.
    size_t (*traffic)(const struct model *m, enum kv_type type_k, enum kv_type type_v,
                      uint32_t n_past, struct engine_traffic *out, size_t max);
    // Starts what takes long and depends on no model, for device `index`, on a thread of its own;
    // once in a process. The others wait for it, and find it done; what fails they tell. end waits,
    // too: before the process ends. NULL: there is nothing.
    void (*begin)(int index);
    void (*end)(void);
};

struct device_choice {
    const struct engine_backend *backend;
    int index;
    uint32_t devices; // as engine_params.devices: several for one model; else 0
    // Why "auto" did not take CUDA although it is built in; "" otherwise.
    char note[320];
    bool no_gpu; // and that is only because the machine has none
};

// Whether the note is worth a line: a GPU that cannot be used always, a machine without one only
// where somebody has a conversation, or asked for details.
static inline bool device_note_due(const struct device_choice *d, bool chat, bool verbose)
{
    return *d->note && (!d->no_gpu || chat || verbose);
}

// want: "auto", "cuda", "cuda:N" or "cpu". cuda NULL: not built in. "auto" takes CUDA where it is
// usable; a device that was asked for by name and cannot be had is an error, never another one.
// Errors: ERR_USAGE, ERR_FAIL.
bool device_choose(const char *want, const struct engine_backend *cpu,
                   const struct engine_backend *cuda, struct device_choice *out, struct error *err);

// Begins, if device_choose of the same will ask for it.
void device_begin(const char *want, const struct engine_backend *cuda);

// The numbers of a list such as "0,1": a bit for each. Errors: ERR_USAGE.
bool devices_parse(const char *want, uint32_t *out, struct error *err);

// want: such a list, of CUDA devices, or "all": what one model is split among. With one, that is
// out->index. All that are named must be usable. Errors: ERR_USAGE, ERR_FAIL.
bool devices_choose(const char *want, const struct engine_backend *cuda, struct device_choice *out,
                    struct error *err);

#endif
