#include "dialog/chat_template.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "gguf/gguf.h"
#include "jinja/named.h"

bool chat_template_find(const struct gguf *g, const char *name, const char *file,
                        const struct cancel *cancel, struct buf *out, struct error *err)
{
    enum { MAX_BYTES = 16 << 20 };
    if (file) {
        const bool ok = file_read_waiting(file, MAX_BYTES, cancel, out, err);
        utf8_drop_mark(out);
        return ok;
    }
    char key[160] = "tokenizer.chat_template";
    struct gguf_str text = {0};
    if (name)
        snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
    if (g && !gguf_get_str(g, key, false, &text, err))
        return false;
    size_t n = text.len;
    const char *found = text.data;
    if (!found && name)
        found = named_template(name, &n);
    if (found)
        return buf_append(out, found, n) || error_oom(err, "the chat template", n);
    if (!name)
        return true;
    struct buf names = {0};
    named_template_list(&names);
    error_set(err, ERR_USAGE, "--chat-template: unknown template \"%.60s\"; there are %s", name,
              buf_str(&names));
    buf_release(&names);
    return false;
}

bool chat_template_choose(const struct gguf *g, const char *name, const char *file,
                          const struct cancel *cancel, struct buf *out, struct error *err)
{
    if (!chat_template_find(g, name, file, cancel, out, err))
        return false;
    return !file || strspn(buf_str(out), " \t\r\n") < out->len ||
           error_set(err, ERR_USAGE,
                     "--chat-template-file %s: found nothing in it, expected a Jinja template",
                     file);
}
