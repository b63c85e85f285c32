#include "tools/tokenize.h"

#include <string.h>

static bool tokenize_one(const struct tokenizer *t, const char *text, size_t n,
                         const struct tokenize_options *opt, struct ids *ids, struct buf *out,
                         struct error *err)
{
    ids_clear(ids);
    if (!tokenizer_encode(t, text, n, opt, ids, err))
        return false;
    buf_putc(out, '[');
    for (size_t i = 0; i < ids->len && !cancel_asked(opt->cancel); i++)
        buf_printf(out, "%s%d", i ? "," : "", ids->data[i]);
    if (cancel_asked(opt->cancel))
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    if (!buf_puts(out, "]\n"))
        return error_oom(err, "the list of token ids", out->len);
    return true;
}

bool tool_tokenize(const struct tokenizer *t, const char *text, size_t n,
                   const struct tokenize_options *opt, bool nul, struct buf *out, struct error *err)
{
    struct ids ids = {0};
    bool ok = true;
    if (!nul)
        ok = tokenize_one(t, text, n, opt, &ids, out, err);
    for (size_t i = 0; nul && ok && i < n;) {
        const char *end = memchr(text + i, '\0', n - i);
        size_t len = end ? (size_t)(end - text) - i : n - i;
        ok = tokenize_one(t, text + i, len, opt, &ids, out, err);
        i += len + 1;
    }
    ids_release(&ids);
    return ok;
}
