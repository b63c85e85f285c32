// Whether two models know the same tokens.
#include <inttypes.h>
#include <string.h>

#include "base/format.h"
#include "text/tokenizer.h"

static const char *const kinds[] = {
    [TOKEN_NORMAL] = "normal",   [TOKEN_UNKNOWN] = "unknown",
    [TOKEN_CONTROL] = "control", [TOKEN_USER_DEFINED] = "user-defined",
    [TOKEN_UNUSED] = "unused",   [TOKEN_BYTE] = "byte",
};

static bool same_token(const struct tokenizer *a, const struct tokenizer *b, int32_t id,
                       struct error *err)
{
    const struct gguf_str x = tokenizer_text(a, id), y = tokenizer_text(b, id);
    const enum token_kind p = tokenizer_kind(a, id), q = tokenizer_kind(b, id);
    char found[FORMAT_TEXT], expected[FORMAT_TEXT];
    if (x.len != y.len || memcmp(x.data, y.data, x.len) != 0)
        return error_set(err, ERR_MODEL, "token %d is \"%s\", expected \"%s\"", id,
                         format_text(found, sizeof found, y.data, y.len),
                         format_text(expected, sizeof expected, x.data, x.len));
    return p == q ||
           error_set(err, ERR_MODEL, "token %d is of kind %s, expected %s", id, kinds[q], kinds[p]);
}

static bool same_id(const char *name, int32_t a, int32_t b, struct error *err)
{
    return a == b || error_set(err, ERR_MODEL, "its %s token is %d, expected %d", name, b, a);
}

static bool same_ends(const struct tokenizer *a, const struct tokenizer *b, struct error *err)
{
    size_t n, m;
    const int32_t *x = tokenizer_end_ids(a, &n), *y = tokenizer_end_ids(b, &m);
    if (n != m)
        return error_set(err, ERR_MODEL, "%zu tokens end a text, expected %zu", m, n);
    for (size_t i = 0; i < n; i++)
        if (!same_id("end", x[i], y[i], err))
            return false;
    return true;
}

bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b, struct error *err)
{
    const uint32_t n = tokenizer_n_vocab(a), m = tokenizer_n_vocab(b), least = n < m ? n : m;
    const struct tokenizer *longer = n < m ? b : a;
    if (strcmp(tokenizer_model(a), tokenizer_model(b)) != 0)
        return error_set(err, ERR_MODEL, "its tokenizer is \"%s\", expected \"%s\"",
                         tokenizer_model(b), tokenizer_model(a));
    for (uint32_t id = least; id < (n < m ? m : n); id++)
        if (tokenizer_kind(longer, (int32_t)id) != TOKEN_UNUSED)
            return error_set(err, ERR_MODEL, "it has %" PRIu32 " tokens, expected %" PRIu32, m, n);
    for (uint32_t id = 0; id < least; id++)
        if (!same_token(a, b, (int32_t)id, err))
            return false;
    return same_id("BOS", tokenizer_bos(a), tokenizer_bos(b), err) &&
           same_id("EOS", tokenizer_eos(a), tokenizer_eos(b), err) && same_ends(a, b, err);
}
