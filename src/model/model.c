// Loading: from an opened file to an immutable model.
#include "model/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/sha256.h"
#include "text/tokenizer.h"

// What the quantisation mixes are called: general.file_type.
static const char *file_type_name(uint32_t file_type)
{
    static const char *const names[] = {
        [0] = "F32",      [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
        [8] = "Q5_0",     [9] = "Q5_1",     [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
        [13] = "Q3_K_L",  [14] = "Q4_K_S",  [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
        [18] = "Q6_K",    [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS",
        [23] = "IQ3_XXS", [24] = "IQ1_S",   [25] = "IQ4_NL", [26] = "IQ3_S",  [27] = "IQ3_M",
        [28] = "IQ2_S",   [29] = "IQ2_M",   [30] = "IQ4_XS", [31] = "IQ1_M",  [32] = "BF16",
        [36] = "TQ1_0",   [37] = "TQ2_0",   [38] = "MXFP4",  [39] = "NVFP4",  [40] = "Q1_0",
    };
    return file_type < sizeof names / sizeof *names ? names[file_type] : NULL;
}

static const char *commonest_type(const struct gguf *g)
{
    uint64_t n[QUANT_TYPE_MAX] = {0};
    uint32_t best = QUANT_F32;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->type < QUANT_TYPE_MAX)
            n[t->type] += t->n_bytes;
    }
    for (uint32_t type = 0; type < QUANT_TYPE_MAX; type++)
        if (n[type] > n[best])
            best = type;
    return quant_info(best)->name;
}

// general.name, else the file's base name without its suffix; one printable line.
static char *describe_name(const struct gguf *g)
{
    char shown[200];
    struct gguf_str name = {0};
    struct error ignored = {0}; // a name of another type is no reason to refuse a model
    if (!gguf_get_str(g, "general.name", false, &name, &ignored) || name.len == 0) {
        const char *path = gguf_file_path(g, 0), *slash = strrchr(path, '/');
        name.data = slash ? slash + 1 : path;
        name.len = strlen(name.data);
        if (name.len > 5 && strcmp(name.data + name.len - 5, ".gguf") == 0)
            name.len -= 5;
    }
    return strdup(format_text(shown, sizeof shown, name.data, name.len));
}

static char *describe_quant(const struct gguf *g)
{
    uint32_t file_type = UINT32_MAX;
    struct error ignored = {0};
    gguf_get_u32(g, "general.file_type", false, &file_type, &ignored);
    const char *name = file_type_name(file_type & ~1024u); // 1024: "guessed"
    return strdup(name ? name : commonest_type(g));
}

// SHA-256 over metadata and tensor table of every part.
static char *fingerprint(const struct gguf *g)
{
    struct sha256 h;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_init(&h);
    for (size_t i = 0; i < gguf_n_files(g); i++)
        sha256_update(&h, gguf_file_map(g, i), (size_t)gguf_header_bytes(g, i));
    sha256_final(&h, digest);
    sha256_hex(digest, hex);
    return strdup(hex);
}

bool model_sample_weights(const struct model *m, char out[65])
{
    enum { SAMPLE = 64 };
    struct sha256 h;
    unsigned char digest[SHA256_BYTES];
    if (!m->gguf)
        return false;
    sha256_init(&h);
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        const uint64_t n = t->n_bytes < SAMPLE ? t->n_bytes : SAMPLE;
        const uint64_t middle = (t->n_bytes - n) / 2;
        sha256_update(&h, t->data, (size_t)n);
        sha256_update(&h, (const char *)t->data + middle, (size_t)n);
    }
    sha256_final(&h, digest);
    sha256_hex(digest, out);
    return true;
}

static bool read_header(struct model *m, struct error *err)
{
    const struct arch *a = arch_find(m->gguf, err);
    if (!a)
        return false;
    m->arch = a->name;
    return facts_read(m, a, err) && model_bind(m, a, err);
}

static bool check_vocabulary(const struct model *m, uint64_t n_vocab, struct error *err)
{
    return n_vocab == m->hp.n_vocab ||
           error_set(err, ERR_MODEL,
                     "tensor token_embd.weight has %u rows, but the vocabulary has %llu tokens",
                     m->hp.n_vocab, (unsigned long long)n_vocab);
}

static bool load(struct model *m, struct error *err)
{
    if (!read_header(m, err) ||
        !gguf_get_str(m->gguf, "tokenizer.chat_template", false, &m->chat_template, err))
        return false;
    if (!m->chat_template.len)
        m->chat_template.data = NULL;
    m->name = describe_name(m->gguf);
    m->quant = describe_quant(m->gguf);
    m->fingerprint = fingerprint(m->gguf);
    if (!m->name || !m->quant || !m->fingerprint)
        return error_oom(err, "model description", 512);
    m->tokenizer = tokenizer_create(m->gguf, err);
    return m->tokenizer && check_vocabulary(m, tokenizer_n_vocab(m->tokenizer), err);
}

bool model_can_load(const char *path, struct error *err)
{
    uint64_t n_vocab;
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return error_oom(err, "model", sizeof *m);
    m->header_only = true;
    m->gguf = gguf_open(path, err);
    const bool can = m->gguf && read_header(m, err) && tokenizer_knows(m->gguf, &n_vocab, err) &&
                     check_vocabulary(m, n_vocab, err);
    model_free(m);
    return can;
}

struct model *model_from_gguf(struct gguf *g, const char *path, struct error *err)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m) {
        gguf_free(g);
        error_oom(err, "model", sizeof *m);
        return NULL;
    }
    m->gguf = g;
    if (load(m, err))
        return m;
    error_prefix(err, "%s", path);
    model_free(m);
    return NULL;
}

struct model *model_load(const char *path, struct error *err)
{
    struct gguf *g = gguf_open(path, err);
    return g ? model_from_gguf(g, path, err) : NULL;
}

static bool predict(struct model *p, const struct model *m, struct error *err)
{
    const struct arch *a = arch_find(m->gguf, err);
    if (!a)
        return false;
    if (m->hp.n_layer_predict == 0)
        return error_set(err, ERR_MODEL,
                         "found no prediction layers in this model (%s.nextn_predict_layers is 0 "
                         "or missing)",
                         a->name);
    if (a->predicts == PREDICTION_LEFT_OUT)
        return error_set(err, ERR_MODEL,
                         "what prediction layers of architecture %s compute is not known", a->name);
    if (!p->layers)
        return error_oom(err, "a prediction layer", sizeof *p->layers);
    *p->layers = m->layers[m->hp.n_layer];
    p->hp.n_layer = 1;
    p->hp.n_layer_predict = 0;
    if (!predictor_bind(p, a, m->hp.n_layer, err))
        return false;
    p->tied = p->output.tensor == p->tok_embd.tensor;
    if (p->tok_embd.data == m->tok_embd.data)
        p->shared_bytes += m->tok_embd.n_bytes;
    if (p->output.data == m->output.data && !(p->tied && p->shared_bytes > 0))
        p->shared_bytes += m->output.n_bytes;
    p->weight_bytes += p->shared_bytes;
    return true;
}

struct model *model_predictor(const struct model *m, struct error *err)
{
    struct model *p = malloc(sizeof *p);
    if (!p) {
        error_oom(err, "model", sizeof *p);
        return NULL;
    }
    *p = *m;
    p->predicts_for = m;
    p->layers = malloc(sizeof *p->layers);
    p->converted = NULL;
    p->n_converted = 0;
    p->n_params = p->weight_bytes = p->grown_bytes = 0;
    if (predict(p, m, err))
        return p;
    model_free(p);
    return NULL;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_converted; i++)
        free(m->converted[i]);
    free(m->converted);
    free(m->layers);
    if (m->predicts_for) { // the rest is its
        free(m);
        return;
    }
    tokenizer_free(m->tokenizer);
    free(m->name);
    free(m->quant);
    free(m->fingerprint);
    gguf_free(m->gguf);
    free(m);
}

bool model_has_tensor(const struct model *m, const struct gguf_tensor *t)
{
    const struct hparams *hp = m->predicts_for ? &m->predicts_for->hp : &m->hp;
    char name[16]; // "blk.12." and more
    unsigned block;
    snprintf(name, sizeof name, "%.*s", (int)(t->name.len < 15 ? t->name.len : 15), t->name.data);
    if (sscanf(name, "blk.%u.", &block) != 1)
        return !m->predicts_for;
    return m->predicts_for ? block == hp->n_layer
                           : block < hp->n_layer || block >= hp->n_layer + hp->n_layer_predict;
}

uint64_t model_bytes_per_token(const struct model *m)
{
    // Everything once (of experts those that it uses), except that only one row of the embedding is
    // looked up. A tied head reads the whole of the same tensor.
    uint64_t n = m->weight_bytes + m->grown_bytes;
    if (!m->tied)
        n -= m->tok_embd.n_bytes;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (int k = 0; k < N_LAYER_WEIGHTS; k++) {
            const struct weight *w = &m->layers[i].w[k];
            n -= w->n_bytes - weight_bytes_used(w);
        }
    const struct weight *told = &m->token_layers, *pos = &m->pos_embd;
    if (told->data)
        n -= told->n_bytes - quant_row_bytes(told->type, told->n_cols);
    if (pos->data)
        n -= pos->n_bytes - pos->n_cols * sizeof(float);
    return n + quant_row_bytes(m->tok_embd.type, m->tok_embd.n_cols);
}

double experts_expected(uint32_t n, uint32_t n_used, uint32_t n_rows)
{
    return n * (1 - pow(1 - (double)n_used / n, n_rows));
}

double model_bytes_per_pass(const struct model *m, uint32_t n_rows)
{
    const struct weight *embd = &m->tok_embd, *told = &m->token_layers, *pos = &m->pos_embd;
    const double row = (double)quant_row_bytes(embd->type, embd->n_cols) +
                       (told->data ? (double)quant_row_bytes(told->type, told->n_cols) : 0) +
                       (pos->data ? (double)(pos->n_cols * sizeof(float)) : 0);
    double n = (double)model_bytes_per_token(m) + (n_rows - 1) * row;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (int k = 0; k < N_LAYER_WEIGHTS; k++) {
            const struct weight *w = &m->layers[i].w[k];
            if (w->n_stacked)
                n += (double)w->n_bytes / w->n_stacked *
                     (experts_expected(w->n_stacked, w->n_used, n_rows) - w->n_used);
        }
    return n;
}
