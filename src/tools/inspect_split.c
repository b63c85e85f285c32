#include "tools/inspect_split.h"

#include "base/format.h"
#include "base/json_text.h"
#include "model/slice.h"
#include "tools/inspect_layers.h"

// why: that there are no more; empty with MODEL_MAX_RANKS.
static uint32_t most_devices(const struct model *m, struct error *why)
{
    uint32_t n = 1;
    while (n < MODEL_MAX_RANKS && model_can_split(m, n + 1, why))
        n++;
    return n;
}

// The next device from i on.
static int next_device(uint32_t devices, int i)
{
    while (!(devices >> i & 1))
        i++;
    return i;
}

static struct model_split evenly(uint32_t devices)
{
    struct model_split s = {.n_rank = (uint32_t)__builtin_popcount(devices)};
    for (uint32_t r = 0; r < s.n_rank && r < MODEL_MAX_RANKS; r++)
        s.share[r] = 1;
    return s;
}

static void text_slice(struct buf *out, const struct model *m, const struct model *slice,
                       int device)
{
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], c[FORMAT_NUMBER];
    buf_printf(out, "  device %d: %s bytes of weights, %s of %s tokens of the head\n", device,
               format_number(a, slice->weight_bytes), format_number(b, slice->output.rows),
               format_number(c, m->hp.n_vocab));
    inspect_layers_text(out, slice);
}

bool inspect_split_text(struct buf *out, const struct model *m, uint32_t devices, struct error *err)
{
    struct error why = {0};
    const uint32_t most = most_devices(m, &why);
    const struct model_split s = evenly(devices);
    buf_puts(out, "devices\n");
    if (most == 1)
        buf_printf(out, "  one GPU alone: %s\n", why.text);
    else
        buf_printf(out, "  up to %u GPUs (--devices)%s%s\n", most, *why.text ? ": " : "", why.text);
    if (s.n_rank > most || devices == 0)
        return true;
    buf_puts(out, "  split evenly, as long as that fits (--dry-run):\n");
    for (uint32_t r = 0, i = 0; r < s.n_rank; r++, i++) {
        struct model *slice = model_slice(m, &s, r, err);
        if (!slice)
            return false;
        i = (uint32_t)next_device(devices, (int)i);
        text_slice(out, m, slice, (int)i);
        model_slice_free(slice);
    }
    return true;
}

bool inspect_split_json(json_t *verdict, const struct model *m, uint32_t devices, struct error *err)
{
    struct error why = {0};
    const uint32_t most = most_devices(m, &why);
    const struct model_split s = evenly(devices);
    json_object_set_new(verdict, "max_devices", json_integer(most));
    json_object_set_new(verdict, "more_devices", *why.text ? json_string(why.text) : json_null());
    if (s.n_rank > most || devices == 0)
        return true;
    json_t *list = json_array();
    for (uint32_t r = 0, i = 0; r < s.n_rank; r++, i++) {
        struct model *slice = model_slice(m, &s, r, err);
        if (!slice) {
            json_decref(list);
            return false;
        }
        i = (uint32_t)next_device(devices, (int)i);
        json_array_append_new(list, json_pack("{s:i, s:o, s:i, s:o}", "device", (int)i,
                                              "weight_bytes", json_u64(slice->weight_bytes), "head",
                                              (int)slice->output.rows, "layer_kinds",
                                              inspect_layers_json(slice)));
        model_slice_free(slice);
    }
    json_object_set_new(verdict, "devices", list);
    return true;
}
