// For tests/conformance/test_dequant.py: dequant_cli TYPE < blocks > float32 weights.
// TYPE "f32_to_f16" reads floats and writes halves.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "gguf/quant.h"

int main(int argc, char **argv)
{
    struct buf in = {0};
    char chunk[65536];
    size_t n;
    int rc = 1;
    void *out = NULL;
    while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0)
        buf_append(&in, chunk, n);
    if (argc != 2 || in.failed || !in.len)
        goto done;
    if (strcmp(argv[1], "f32_to_f16") == 0) {
        size_t n_elems = in.len / 4;
        uint16_t *halves = out = malloc(n_elems * sizeof *halves);
        if (!halves)
            goto done;
        for (size_t i = 0; i < n_elems; i++) {
            float f;
            memcpy(&f, in.data + 4 * i, sizeof f);
            halves[i] = quant_f32_to_f16(f);
        }
        rc = fwrite(out, 2, n_elems, stdout) != n_elems;
    } else {
        for (uint32_t type = 0; type < QUANT_TYPE_MAX; type++) {
            const struct quant_info *qi = quant_info(type);
            if (!qi->supported || strcmp(qi->name, argv[1]))
                continue;
            size_t n_elems = in.len / qi->block_bytes * qi->block_elems;
            out = malloc(n_elems * sizeof(float));
            if (!out)
                goto done;
            quant_dequantize(type, in.data, out, n_elems);
            rc = fwrite(out, sizeof(float), n_elems, stdout) != n_elems;
            break;
        }
    }
done:
    free(out);
    buf_release(&in);
    return rc;
}
