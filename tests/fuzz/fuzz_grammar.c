// libFuzzer target: a grammar. The first byte says of which kind (bit 0: JSON Schema, else GBNF;
// bit 1: with indentation); then comes its text. What is taken is walked through: along masks, to
// the end.
#include <stdlib.h>

#include "grammar/matcher.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_TOKENS = 256 + 8, END = N_TOKENS };

// Bytes, a few longer tokens, and one that ends the answer.
static struct grammar_vocab *vocabulary(void)
{
    static const char *const longer[N_TOKENS - 256] = {"\"}",  "\",\"", "\":",  "ab",
                                                       "true", "\xc3",  "12.5", "\xe2\x82"};
    static struct trie_text texts[N_TOKENS];
    struct grammar_vocab *v = calloc(1, sizeof *v);
    v->begin = malloc((N_TOKENS + 2) * sizeof *v->begin);
    for (int i = 0; i < N_TOKENS; i++) {
        v->begin[i] = (uint32_t)v->bytes.len;
        if (i < 256)
            buf_putc(&v->bytes, (char)i);
        else
            buf_puts(&v->bytes, longer[i - 256]);
    }
    v->begin[END] = v->begin[END + 1] = (uint32_t)v->bytes.len;
    for (int i = 0; i < N_TOKENS; i++)
        texts[i] = (struct trie_text){
            .s = v->bytes.data + v->begin[i], .n = v->begin[i + 1] - v->begin[i], .id = i};
    v->n = N_TOKENS + 1;
    v->end_ids = malloc(sizeof *v->end_ids);
    v->end_ids[0] = END;
    v->n_end_ids = 1;
    if (!trie_init(&v->trie, texts, N_TOKENS))
        abort();
    return v;
}

// A few tokens of every mask, then the shortest way to the end. What the mask has must be taken,
// and nothing may be stuck.
static void follow(struct grammar_matcher *m, uint32_t choice)
{
    uint32_t bits[(N_TOKENS + 32) / 32], walked[(N_TOKENS + 32) / 32], n;
    struct grammar_state s;
    struct error err = {0};
    grammar_state_init(&s, m);
    for (int step = 0; step < 40; step++) {
        if (!grammar_mask(&s, bits, sizeof bits / sizeof *bits, &n, &err))
            break; // too ambiguous
        if (!masks_compute(m, s.config, false, walked))
            break;
        int32_t ids[N_TOKENS + 1];
        uint32_t n_ids = 0;
        for (int32_t id = 0; id <= END; id++) {
            if ((bits[id / 32] ^ walked[id / 32]) >> (id % 32) & 1)
                abort(); // tables and walk disagree
            if (bits[id / 32] >> (id % 32) & 1)
                ids[n_ids++] = id;
        }
        choice = choice * 1664525 + 1013904223;
        int32_t id = ids[(choice >> 8) % n_ids];
        if (!grammar_accept(&s, id, &err))
            abort();
        if (id == END)
            break;
    }
    uint32_t left = err.code || s.config == CONFIG_DEAD ? 0 : grammar_distance(&s);
    for (uint32_t i = 0; i < 200 && left; i++) {
        int32_t id;
        if (!grammar_closing(&s, &id, &err))
            break;
        if (id < 0 || !grammar_accept(&s, id, &err) || grammar_distance(&s) >= left)
            abort();
        left = grammar_distance(&s);
    }
    grammar_state_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct grammar_vocab *v;
    if (!v)
        v = vocabulary();
    if (size == 0)
        return 0;
    struct error err = {0};
    const char *text = (const char *)data + 1;
    struct grammar *g = data[0] & 1
                            ? grammar_from_schema(text, size - 1, data[0] & 2 ? 2 : 0, NULL, &err)
                            : grammar_from_gbnf(text, size - 1, NULL, &err);
    if (!g) {
        if (err.code != ERR_USAGE && err.code != ERR_MEMORY)
            abort();
        return 0;
    }
    struct grammar_matcher *m = grammar_matcher_create(g, v, &err);
    if (m)
        for (uint32_t i = 0; i < 3; i++)
            follow(m, i + (uint32_t)size);
    grammar_matcher_free(m);
    grammar_free(g);
    return 0;
}
