#include "serve/routes.h"

#include <inttypes.h>
#include <string.h>

#include "base/json_text.h"
#include "serve/reply.h"

static bool no_memory(struct refusal *r)
{
    return refuse(r, 503, NULL, "out_of_memory", "no memory for the answer");
}

static bool health(const struct route_facts *f, const struct ask *a, struct buf *out,
                   struct refusal *r)
{
    (void)f, (void)a;
    return buf_puts(out, "{\"status\":\"ok\"}") || no_memory(r);
}

static json_t *model_object(const struct route_facts *f)
{
    return json_pack("{s:s, s:s, s:i, s:s, s:i}", "id", f->model, "object", "model", "created", 0,
                     "owned_by", "hokku", "context_length", (int)f->n_ctx);
}

static bool models(const struct route_facts *f, const struct ask *a, struct buf *out,
                   struct refusal *r)
{
    (void)a;
    return reply_json(json_pack("{s:s, s:[o]}", "object", "list", "data", model_object(f)), false,
                      out) ||
           no_memory(r);
}

static bool model(const struct route_facts *f, const struct ask *a, struct buf *out,
                  struct refusal *r)
{
    (void)a;
    return reply_json(model_object(f), false, out) || no_memory(r);
}

static bool metrics(const struct route_facts *f, const struct ask *a, struct buf *out,
                    struct refusal *r)
{
    (void)a;
    pthread_mutex_lock(&f->desk->lock);
    const struct metrics m = f->desk->metrics;
    pthread_mutex_unlock(&f->desk->lock);
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } rows[] = {
        {"answers_total", "counter", "Answers that came to their end.", m.n_answers},
        {"cancelled_total", "counter", "Answers whose client left.", m.n_cancelled},
        {"refused_total", "counter", "Requests that were refused.", m.n_refused},
        {"prompt_tokens_total", "counter", "Tokens of prompts.", m.n_prompt},
        {"prompt_tokens_shared_total", "counter", "Of them, those that were evaluated already.",
         m.n_reused},
        {"generated_tokens_total", "counter", "Tokens of answers.", m.n_generated},
        {"drafted_tokens_total", "counter", "Guesses of them that were checked.", m.n_drafted},
        {"accepted_tokens_total", "counter", "Of them, those that came true.", m.n_accepted},
        {"answers_running", "gauge", "Answers that are read or decoded.", m.n_running},
        {"answers_waiting", "gauge", "Answers that wait for room.", m.n_waiting},
        {"kv_blocks", "gauge", "Blocks of keys and values.", m.n_pool},
        {"kv_blocks_free", "gauge", "Of them, those that nobody has.", m.n_pool_free},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        buf_printf(out, "# HELP hokku_%s %s\n# TYPE hokku_%s %s\nhokku_%s %" PRIu64 "\n",
                   rows[i].name, rows[i].help, rows[i].name, rows[i].type, rows[i].name,
                   rows[i].value);
    return !out->failed || no_memory(r);
}

static bool detokenize(const struct route_facts *f, const struct ask *a, struct buf *out,
                       struct refusal *r)
{
    struct buf text = {0};
    bool ok = true;
    const json_int_t n_vocab = tokenizer_n_vocab(f->tok);
    for (size_t i = 0; ok && i < json_array_size(a->tokens); i++) {
        const json_int_t id = json_integer_value(json_array_get(a->tokens, i));
        if (id < 0 || id >= n_vocab)
            ok = refuse(r, 400, "tokens", "invalid_value",
                        "\"tokens\": found %" JSON_INTEGER_FORMAT
                        ", expected ids from 0 to %" JSON_INTEGER_FORMAT,
                        id, n_vocab - 1);
        else
            ok = tokenizer_decode_one(f->tok, (int32_t)id, true, &text) || no_memory(r);
    }
    json_t *content = ok ? json_text(buf_str(&text), text.len) : NULL;
    ok = ok && (reply_json(json_pack("{s:o}", "content", content), false, out) || no_memory(r));
    buf_release(&text);
    return ok;
}

static const char json[] = "application/json";
static const struct route routes[] = {
    {"GET", "/health", true, false, ASK_CHAT, health, json},
    {"GET", "/v1/models", false, false, ASK_CHAT, models, json},
    {"GET", "/metrics", false, false, ASK_CHAT, metrics, "text/plain; version=0.0.4"},
    {"POST", "/v1/chat/completions", false, true, ASK_CHAT, NULL, json},
    {"POST", "/v1/completions", false, true, ASK_COMPLETION, NULL, json},
    {"POST", "/apply-template", false, true, ASK_TEMPLATE, NULL, json},
    {"POST", "/tokenize", false, true, ASK_TOKENIZE, NULL, json, ROUTES_MOST_TEXT},
    {"POST", "/detokenize", false, true, ASK_DETOKENIZE, detokenize, json},
};

static const struct route model_route = {"GET", ROUTES_ONE_MODEL, false, false, ASK_CHAT, model,
                                         json};

const struct route *route_find(const char *path, const char *name)
{
    const size_t n = strlen(ROUTES_ONE_MODEL);
    if (strncmp(path, ROUTES_ONE_MODEL, n) == 0 && strcmp(path + n, name) == 0)
        return &model_route;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(routes[i].path, path) == 0)
            return &routes[i];
    return NULL;
}

const char *routes_known(void)
{
    return "GET /health, /v1/models, /v1/models/NAME, /metrics, POST /v1/chat/completions, "
           "/v1/completions, /apply-template, /tokenize, /detokenize";
}
