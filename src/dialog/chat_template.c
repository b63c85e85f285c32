#include "dialog/chat_template.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "gguf/gguf.h"
#include "jinja/named.h"
#include "jinja/template.h"

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

// What is wrong in a file is said of the file.
static bool check_file(const char *file, const struct buf *text, struct error *err)
{
    if (strspn(buf_str(text), " \t\r\n") == text->len)
        return error_set(err, ERR_USAGE,
                         "--chat-template-file %s: found nothing in it, expected a Jinja template",
                         file);
    struct template *t = template_parse(buf_str(text), text->len, err);
    if (!t)
        return error_prefix(err, "--chat-template-file %s", file);
    template_free(t);
    return true;
}

bool chat_template_choose(const struct gguf *g, const char *name, const char *file,
                          const struct cancel *cancel, struct buf *out, struct error *err)
{
    return chat_template_find(g, name, file, cancel, out, err) &&
           (!file || check_file(file, out, err));
}
