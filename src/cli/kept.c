#include "cli/kept.h"

#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "gguf/gguf.h"
#include "model/model.h"

// Of all its files. False: not known.
static bool identify(const struct model *m, struct buf *out)
{
    bool ok = true;
    buf_clear(out);
    for (size_t i = 0; ok && i < gguf_n_files(m->gguf); i++)
        ok = file_identity(gguf_file_path(m->gguf, i), out) && buf_putc(out, ' ');
    return ok;
}

bool kept_take_model(struct kept *k, struct opened *m)
{
    struct buf now = {0};
    k->began = clock_now();
    const bool same = k->opened.model && strcmp(k->opened.path, m->path) == 0 &&
                      identify(k->opened.model, &now) &&
                      strcmp(buf_str(&now), buf_str(&k->identity)) == 0;
    buf_release(&now);
    if (!same) {
        opened_release(&k->opened);
        return false;
    }
    m->model = k->opened.model;
    k->opened.model = NULL;
    return true;
}

void kept_note_model(struct kept *k, const struct opened *m)
{
    if (!identify(m->model, &k->identity))
        buf_clear(&k->identity); // nothing is like this
}

bool kept_take_engine(struct kept *k, struct opened *m, const struct engine_backend *backend,
                      const struct engine_params *p)
{
    struct engine *e = k->opened.engine;
    const struct engine_params *q = &k->params;
    k->opened.engine = NULL;
    if (e && e->model == m->model && k->backend == backend && q->n_ctx == p->n_ctx &&
        q->n_batch == p->n_batch && q->n_seqs == p->n_seqs && q->exact == p->exact &&
        q->type_k == p->type_k && q->type_v == p->type_v && q->n_threads == p->n_threads &&
        q->device_index == p->device_index && q->devices == p->devices) {
        m->engine = e;
        return true;
    }
    engine_free(e);
    return false;
}

void kept_note_engine(struct kept *k, const struct engine_backend *backend,
                      const struct engine_params *params)
{
    k->backend = backend;
    k->params = *params;
    k->load_s = clock_now() - k->began;
}

void kept_give(struct kept *k, struct opened *m)
{
    // A call that ended before it had a use for the engine has left it here.
    struct engine *e = m->engine ? m->engine : k->opened.engine;
    if (!m->model || !e || e->model != m->model)
        return;
    k->opened.engine = NULL;
    m->engine = NULL;
    opened_release(&k->opened);
    k->opened = (struct opened){.path = m->path, .model = m->model, .engine = e};
    *m = (struct opened){0};
}

void kept_release(struct kept *k)
{
    opened_release(&k->opened);
    buf_release(&k->identity);
}
