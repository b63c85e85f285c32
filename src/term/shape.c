#include "term/shape.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum { MAX_BYTES = 16 << 20 };

bool shape_read(const struct options *o, const struct cancel *cancel, struct grammar **g,
                struct error *err)
{
    const char *path = o->grammar_file, *text = o->json_schema ? o->json_schema : o->grammar;
    const char *what = o->json_schema ? "--json-schema"
                       : o->grammar   ? "--grammar"
                                      : "--grammar-file";
    struct buf file = {0};
    *g = NULL;
    if (!path && !text)
        return true;
    if (o->json_schema && text[0] == '@')
        path = text + 1;
    if (path && !file_read_setting(path, MAX_BYTES, cancel, &file, err))
        return error_prefix(err, "%s", what);
    if (path)
        text = buf_str(&file);
    const size_t n = path ? file.len : strlen(text);
    *g = o->json_schema ? grammar_from_schema(text, n, o->json_indent, cancel, err)
                        : grammar_from_gbnf(text, n, cancel, err);
    buf_release(&file);
    const char *name = path ? path : text + (text[0] == '@'); // as of a schema's file
    if (!*g && !path && access(name, F_OK) == 0)              // the name was meant
        return error_set(err, ERR_USAGE, "%s: %s is a file: %s%s reads it", what, name,
                         o->json_schema ? "--json-schema @" : "--grammar-file ", name);
    return *g || error_prefix(err, "%s%s%s", what, path ? " " : "", path ? path : "");
}

bool shape_set(struct shape *s, struct grammar *g, const char *name, const struct model *m,
               bool close, struct error *err)
{
    struct shape now = {0};
    if (g) {
        now.constraint = constraint_create(g, NULL, m->tokenizer, m->hp.n_vocab, close, err);
        if (!now.constraint)
            return false;
        now.name = strdup(name);
        if (!now.name) {
            shape_release(&now);
            return error_oom(err, "the name of a grammar", strlen(name));
        }
    }
    shape_release(s);
    *s = now;
    return true;
}

void shape_release(struct shape *s)
{
    constraint_free(s->constraint);
    free(s->name);
    *s = (struct shape){0};
}

bool shape_obeyed(const struct shape *s, enum finish finish, struct error *err)
{
    // What a stop text cuts off, the constraint has seen.
    if (!s->constraint || (finish != FINISH_STOP_TEXT && constraint_obeyed(s->constraint)))
        return true;
    if (finish == FINISH_STOP_TEXT)
        return error_set(err, ERR_FAIL,
                         "the answer ended at a stop text before it obeyed the grammar: leave -r "
                         "out, or name a text that is in none that does");
    return error_set(err, ERR_FAIL,
                     "the answer ended (%s) before it obeyed the grammar: a larger -n or -c%s",
                     finish_name(finish), s->constraint->close ? "" : ", or --json-close");
}
