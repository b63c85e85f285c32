// libFuzzer target: a byte of flags, a byte n, n bytes of text, and the rest as a GGUF whose
// tokenizer encodes the text and decodes it again. meson.build here says how to build and run it.
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void encode_and_decode(const struct tokenizer *t, const char *text, size_t n,
                              unsigned char flags)
{
    struct error err = {0};
    struct ids ids = {0};
    struct buf out = {0};
    unsigned char mask[256];
    for (size_t i = 0; i < n; i++)
        mask[i] = (unsigned char)text[i] % 8 != flags >> 5;
    struct tokenize_options opt = {
        .bos = flags & 1,
        .eos = flags & 2,
        .special = flags & 4,
        .special_mask = flags & 8 ? mask : NULL,
        .continuation = flags & 16,
    };
    bool may_be_control = flags & 15;
    if (tokenizer_encode(t, text, n, &opt, &ids, &err)) {
        struct detok d = {.tok = t, .special = flags & 4, .strip_space = flags & 16};
        for (size_t i = 0; i < ids.len; i++) {
            require(ids.data[i] >= 0 && (uint32_t)ids.data[i] < tokenizer_n_vocab(t));
            require(may_be_control || tokenizer_kind(t, ids.data[i]) != TOKEN_CONTROL);
            require(detok_push(&d, ids.data[i], &out));
        }
        require(detok_flush(&d, &out));
    } else {
        require(err.code == ERR_FAIL);
    }
    ids_release(&ids);
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    struct error err = {0};
    if (n < 2 || n < 2u + data[1])
        return 0;
    size_t n_text = data[1];
    struct gguf *g = gguf_open_memory(data + 2 + n_text, n - 2 - n_text, "fuzz", &err);
    struct tokenizer *t = g ? tokenizer_create(g, &err) : NULL;
    require(t || err.code == ERR_MODEL);
    if (t)
        encode_and_decode(t, (const char *)data + 2, n_text, data[0]);
    tokenizer_free(t);
    gguf_free(g);
    return 0;
}
