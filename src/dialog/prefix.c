// From messages to the tokens that an answer begins with: render the chat template, tokenise what
// is text, and put the recorded ids where an answer's own text stands.
#include "dialog/prefix.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/utf8.h"
#include "jinja/from_json.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\v' || c == '\f';
}

// The variables of one rendering, and what their strings point to until it ends.
struct variables {
    const struct conversation *c;
    const struct prefix_request *q;
    bool merge_system;
    struct buf merged, bos, eos;
    json_t *merged_fields; // owned: of the message that has them, with the merged text; NULL: none
    struct buf *thinking;  // [q->n_messages], as templates with a field for it want it
    // index[] receives for each rendered message the index of ours; it has room for all.
    size_t *index, n_index;
};

static bool token_text(const struct conversation *c, int32_t id, struct buf *b)
{
    return id < 0 || tokenizer_decode_one(c->model->tokenizer, id, true, b);
}

static size_t first_rendered(const struct variables *v)
{
    size_t head = v->c->has_system ? 1 : 0;
    return v->q->first_kept > head ? v->q->first_kept : head;
}

static bool uses_system(const struct variables *v)
{
    return v->c->has_system && v->q->n_messages > 0;
}

// Makes the strings that nobody has.
static bool variables_prepare(struct variables *v)
{
    const struct tokenizer *tok = v->c->model->tokenizer;
    size_t first = first_rendered(v);
    buf_clear(&v->merged);
    if (v->merge_system && uses_system(v) && first < v->q->n_messages) {
        const struct message *m = v->c->messages;
        buf_append(&v->merged, m[0].text.data, m[0].text.len);
        buf_puts(&v->merged, "\n\n");
        buf_append(&v->merged, m[first].text.data, m[first].text.len);
        json_decref(v->merged_fields);
        json_lost(); // of what came before
        v->merged_fields = json_copy((json_t *)(uintptr_t)m[first].fields);
        if (m[first].fields &&
            json_object_set_new(v->merged_fields, "content",
                                json_stringn(buf_str(&v->merged), v->merged.len)) != 0)
            return false;
        if (json_lost())
            return false;
    }
    buf_clear(&v->bos);
    buf_clear(&v->eos);
    for (size_t i = 0; v->c->think_fields && i < v->q->n_messages; i++) {
        const struct message *m = &v->c->messages[i];
        buf_clear(&v->thinking[i]);
        if (!think_append(&v->thinking[i], buf_str(&m->text), m->thinking_at, m->thinking_end))
            return false;
    }
    return token_text(v->c, tokenizer_bos(tok), &v->bos) &&
           token_text(v->c, tokenizer_eos(tok), &v->eos) && !v->merged.failed;
}

static void variables_release(struct variables *v)
{
    for (size_t i = 0; v->thinking && i < v->q->n_messages; i++)
        buf_release(&v->thinking[i]);
    free(v->thinking);
    free(v->index);
    buf_release(&v->merged);
    json_decref(v->merged_fields);
    buf_release(&v->bos);
    buf_release(&v->eos);
}

static void put_buf(struct template_slot to, const struct buf *b)
{
    template_put_str(to, buf_str(b), b->len);
}

static void put_message(struct variables *v, struct template_list list, size_t i,
                        const struct buf *text)
{
    const struct message *from = &v->c->messages[i];
    const char *role = role_name(from->role);
    if (from->fields) {
        template_put_json(template_next(list),
                          text == &v->merged ? v->merged_fields : from->fields);
        v->index[v->n_index++] = i;
        return;
    }
    struct template_object m = template_put_object(template_next(list));
    template_put_str(template_at(m, "role"), role, strlen(role));
    v->index[v->n_index++] = i;
    if (v->c->think_fields == 0 || from->answer_at == 0 || text != &from->text) {
        put_buf(template_at(m, "content"), text);
        return;
    }
    size_t end = think_answer_end(buf_str(text), text->len, from->answer_at);
    template_put_str(template_at(m, "content"), buf_str(text) + from->answer_at,
                     end - from->answer_at);
    for (int k = 0; k < THINK_FIELDS; k++)
        if (v->c->think_fields >> k & 1 && v->thinking[i].len > 0)
            put_buf(template_at(m, think_field_name(k)), &v->thinking[i]);
}

// Qwen3, GLM, SmolLM3 ask enable_thinking; DeepSeek V3.1 and Granite ask thinking; Seed-OSS has a
// budget, of nothing where it is not to think.
enum { N_THINK_VARIABLES = 2 };
static const char *const think_variables[N_THINK_VARIABLES] = {"enable_thinking", "thinking"};
static const char think_budget[] = "thinking_budget";

const char *conversation_unheard(const struct conversation *c, enum think think)
{
    if (think != THINK_ON && think != THINK_OFF)
        return NULL;
    if (!c->tmpl)
        return "there is no chat template, so the model is not told";
    bool hears = think == THINK_OFF && template_reads(c->tmpl, think_budget);
    for (int i = 0; i < N_THINK_VARIABLES; i++)
        hears |= template_reads(c->tmpl, think_variables[i]);
    return hears ? NULL : "the chat template does not read it, so the model is not told";
}

static void put_variables(void *user, struct template_object vars)
{
    struct variables *v = user;
    const struct message *m = v->c->messages;
    struct template_list list = template_put_list(template_at(vars, "messages"));
    v->n_index = 0;
    if (uses_system(v) && !v->merge_system)
        put_message(v, list, 0, &m[0].text);
    for (size_t first = first_rendered(v), i = first; i < v->q->n_messages; i++)
        put_message(v, list, i, i == first && v->merged.len > 0 ? &v->merged : &m[i].text);
    if (v->c->tools)
        template_put_json(template_at(vars, "tools"), v->c->tools);
    template_put_bool(template_at(vars, "add_generation_prompt"), v->q->generation);
    put_buf(template_at(vars, "bos_token"), &v->bos);
    put_buf(template_at(vars, "eos_token"), &v->eos);
    if (v->q->think != THINK_DEFAULT) {
        const bool on = v->q->think != THINK_OFF;
        for (int i = 0; i < N_THINK_VARIABLES; i++)
            template_put_bool(template_at(vars, think_variables[i]), on);
        if (!on)
            template_put_int(template_at(vars, think_budget), 0);
    }
}

// Where a recorded answer stands in rendered text, and which of its ids are there.
struct match {
    size_t begin, end;       // bytes of the rendered text that the ids replace
    size_t first_id, end_id; // of message.ids
};

static size_t n_text_ids(const struct message *m)
{
    return m->ids.len - (m->has_end_token && m->ids.len > 0);
}

// Leaves out the ids of the mark that closes the answer, and what follows it: the template writes
// that. *n_full: the bytes that the other ids stand for.
static bool leave_out_close(const struct conversation *c, const struct message *m, size_t *n_full,
                            size_t *end_id)
{
    const size_t end = think_answer_end(m->text.data, m->text.len, m->answer_at);
    struct buf piece = {0};
    size_t id = 0, at = 0;
    bool ok = true;
    while (end < m->text.len && id < *end_id) {
        buf_clear(&piece);
        ok = tokenizer_decode_one(c->model->tokenizer, m->ids.data[id], false, &piece);
        if (!ok || piece.len > end - at)
            break;
        at += piece.len;
        id++;
    }
    if (ok && id > 0 && at == end) {
        *end_id = id;
        *n_full = end;
    }
    buf_release(&piece);
    return ok;
}

// A run of rendered bytes that comes from message m: is it the answer, perhaps trimmed of white
// space, perhaps without the thinking before it? The trimmed white space is part of the recorded
// ids, so the same white space around the run, if the template wrote any, is replaced too; and so
// is all that the answer began with, where the rendered text from floor on has just that. *failed
// is set without memory to know.
static bool match_run(const struct conversation *c, const struct message *m, const char *text,
                      size_t n_text, size_t floor, size_t begin, size_t end, struct match *out,
                      bool *failed)
{
    struct buf valid = {0};
    const char *full = m->text.data;
    size_t n_full = m->text.len, n_run = end - begin;
    bool found = false;
    out->end_id = n_text_ids(m);
    if (!utf8_valid(full, n_full)) {
        *failed |= !buf_append_utf8(&valid, full, n_full);
        if (*failed)
            goto done;
        full = valid.data;
        n_full = valid.len;
    } else if (m->answer_at > 0 && n_run < n_full) {
        *failed |= !leave_out_close(c, m, &n_full, &out->end_id);
    }
    size_t n_trimmed = n_full;
    while (n_trimmed > 0 && is_space(full[n_trimmed - 1]))
        n_trimmed--;
    size_t stop = n_full;
    if (n_run == 0 || n_run > n_full)
        goto done;
    if (memcmp(full + stop - n_run, text + begin, n_run) != 0) {
        stop = n_trimmed;
        if (n_run > stop || memcmp(full + stop - n_run, text + begin, n_run) != 0)
            goto done;
    }
    size_t start = stop - n_run, lead = 0;
    while (lead < start && is_space(full[lead]))
        lead++;
    out->first_id = 0;
    size_t from = 0; // where in full the ids of the match begin
    if (lead < start) {
        // Only the end of the answer was rendered: the ids can be used if a token begins there.
        // `raw` and `at` are the same place in the exact and in the rendered bytes.
        struct buf piece = {0};
        size_t raw = 0, at = 0, target = 0;
        bool at_token = false;
        for (size_t k = 0; k < out->end_id && at <= start; k++) {
            bool only_space = raw == target;
            for (size_t i = at; only_space && i < start; i++)
                only_space = is_space(full[i]);
            if (only_space) {
                at_token = true;
                out->first_id = k;
                from = at;
            }
            buf_clear(&piece);
            *failed |= !tokenizer_decode_one(c->model->tokenizer, m->ids.data[k], false, &piece);
            if (*failed)
                break;
            target += piece.len;
            while (raw < target && raw < m->text.len) {
                uint32_t cp;
                size_t used = utf8_decode(m->text.data + raw, m->text.len - raw, &cp);
                raw += used > 0 ? used : 1;
                at += used > 0 ? used : 3; // U+FFFD
            }
        }
        buf_release(&piece);
        if (!at_token || *failed)
            goto done;
    }
    size_t before = start - from, after = n_full - stop;
    out->begin = begin;
    out->end = end;
    if (before <= begin && memcmp(text + begin - before, full + from, before) == 0)
        out->begin = begin - before;
    if (out->begin + before == begin && from > 0 && from <= out->begin - floor &&
        memcmp(text + out->begin - from, full, from) == 0) {
        out->begin -= from;
        out->first_id = 0;
    }
    if (after <= n_text - end && memcmp(text + end, full + stop, after) == 0)
        out->end = end + after;
    found = true;
done:
    buf_release(&valid);
    return found;
}

static bool split(const struct conversation *c, const char *text, size_t n,
                  struct tokenize_options opt, struct ids *out, struct error *err)
{
    opt.cancel = c->cancel;
    opt.most = c->most_ids;
    if (tokenizer_encode(c->model->tokenizer, text, n, &opt, out, err))
        return true;
    return err->code != ERR_CONTEXT
               ? false
               : error_set(err, ERR_CONTEXT,
                           "the prompt takes more than %zu tokens and the context holds %u; %s",
                           c->most_ids, c->session.engine->n_ctx, conversation_make_fit(c));
}

struct piece_writer {
    const struct conversation *c;
    const char *text;
    const unsigned char *mask;
    struct ids *out;
    bool any; // something was written before
};

static bool write_text(struct piece_writer *w, size_t begin, size_t end, struct error *err)
{
    if (w->any && begin >= end)
        return true;
    struct tokenize_options opt = {
        .bos = !w->any,
        .special_mask = w->mask + begin,
        .continuation = w->any,
    };
    w->any = true;
    return split(w->c, w->text + begin, end - begin, opt, w->out, err);
}

// For each of n messages the first span that comes from it, and behind these for each span the next
// one of the same message; n_spans: there is none. NULL: there is no memory.
static size_t *spans_of_messages(const struct template_output *r, size_t n)
{
    size_t *first = malloc((n + r->n_spans + 1) * sizeof *first);
    for (size_t k = 0; first && k < n; k++)
        first[k] = r->n_spans;
    for (size_t i = r->n_spans; first && i-- > 0;) {
        const size_t k = r->spans[i].origin - (size_t)ORIGIN_MESSAGE;
        if (k >= n) // (another's, too)
            continue;
        first[n + i] = first[k];
        first[k] = i;
    }
    return first;
}

// Pieces of an answer that are compared with it, which takes as long as it is: no honest template
// has it in more.
enum { MOST_COMPARED = 256 };

// Turns the rendered text into ids.
static bool tokenise(struct conversation *c, const struct prefix_request *q,
                     const struct template_output *r, const size_t *index, size_t n_index,
                     struct ids *out, struct error *err)
{
    size_t n = r->text.len;
    unsigned char *mask = calloc(n + 1, 1);
    size_t *spans = spans_of_messages(r, n_index);
    if (!mask || !spans) {
        free(mask);
        free(spans);
        return error_oom(err, "the places of the prompt's text", n);
    }
    for (size_t i = 0; i < r->n_spans; i++) {
        if (r->spans[i].origin == ORIGIN_TEMPLATE)
            memset(mask + r->spans[i].begin, 1, r->spans[i].end - r->spans[i].begin);
    }
    struct piece_writer w = {c, buf_str(&r->text), mask, out, false};
    size_t at = 0; // bytes already written
    bool ok = true, head_done = false;
    for (size_t k = 0; ok && k < n_index; k++) {
        const struct message *m = &c->messages[index[k]];
        size_t last = 0, n_compared = 0;
        bool have = false, failed = false;
        struct match best = {0};
        for (size_t i = spans[k]; i < r->n_spans; i = spans[n_index + i]) {
            const struct template_span *s = &r->spans[i];
            struct match found;
            if (s->begin < at)
                continue;
            if (cancel_asked(c->cancel)) {
                ok = error_set(err, ERR_INTERRUPTED, "interrupted while the prompt was made");
                break;
            }
            if (q->head && !head_done && m->role == ROLE_USER) {
                // Counting: what comes before the first user's message, tokenised by itself.
                struct ids head = {0};
                struct piece_writer hw = w;
                hw.out = &head;
                ok = write_text(&hw, at, s->begin, err);
                *q->head = head.len;
                head_done = true;
                ids_release(&head);
            }
            last = s->end;
            if (m->role == ROLE_ASSISTANT && m->ids.len > 0 && n_compared++ < MOST_COMPARED &&
                match_run(c, m, w.text, n, at, s->begin, s->end, &found, &failed) &&
                found.begin >= at && (!have || found.end - found.begin > best.end - best.begin)) {
                best = found;
                have = true;
            }
        }
        if (failed)
            ok = error_oom(err, "the places of an answer", m->text.len);
        if (!ok || m->role != ROLE_ASSISTANT)
            continue;
        if (have) {
            ok = write_text(&w, at, best.begin, err);
            if (ok && !ids_append(out, m->ids.data + best.first_id, best.end_id - best.first_id))
                ok = error_oom(err, "the prompt's tokens", out->len);
            at = best.end;
        } else if (q->ends && last > at) {
            ok = write_text(&w, at, last, err);
            at = last;
        }
        if (q->ends)
            q->ends[index[k]] = out->len;
    }
    ok = ok && write_text(&w, at, n, err);
    free(spans);
    free(mask);
    return ok;
}

// Without a template: the texts one after the other, a line break between an answer and what the
// user adds unless one of them brings white space.
static bool plain_prefix(struct conversation *c, const struct prefix_request *q, struct ids *out,
                         struct error *err)
{
    const struct tokenizer *tok = c->model->tokenizer;
    struct buf text = {0};
    bool any = false, ok = true;
    char last = '\n';
    for (size_t i = 0; ok && i < q->n_messages; i++) {
        const struct message *m = &c->messages[i];
        if (!(c->has_system && i == 0) && i < q->first_kept)
            continue;
        if (m->role == ROLE_ASSISTANT) {
            ok = ids_append(out, m->ids.data, n_text_ids(m)) ||
                 error_oom(err, "the prompt's tokens", out->len);
            any = true;
        } else {
            bool parted = any && m->text.len > 0 && !is_space(last) && !is_space(m->text.data[0]);
            const struct buf *use = &m->text; // as it is, if it can be: it may be long
            buf_clear(&text);
            if (parted || m->role == ROLE_SYSTEM) {
                buf_puts(&text, parted ? "\n" : "");
                buf_append(&text, m->text.data, m->text.len);
                buf_puts(&text, m->role == ROLE_SYSTEM ? "\n\n" : "");
                use = &text;
            }
            if (text.failed) {
                ok = error_oom(err, "the prompt's text", m->text.len);
                break;
            }
            struct tokenize_options opt = {.bos = !any, .continuation = any, .special = c->special};
            ok = split(c, buf_str(use), use->len, opt, out, err);
            any = true;
            if (q->head && m->role == ROLE_SYSTEM)
                *q->head = out->len;
        }
        if (m->text.len > 0)
            last = m->text.data[m->text.len - 1];
        if (q->ends)
            q->ends[i] = out->len;
    }
    if (ok && out->len == 0 && q->generation) { // an empty prompt: BOS alone
        struct tokenize_options opt = {.bos = true};
        ok = tokenizer_encode(tok, "", 0, &opt, out, err);
    }
    buf_release(&text);
    return ok;
}

// shown[k], false before: whether something of the k-th of n rendered messages is there. -> bytes
// of the longest text of several origins, which may have any message's that is no longer.
static size_t find_shown(const struct template_output *r, size_t n, bool *shown)
{
    size_t longest = 0;
    for (size_t i = 0; i < r->n_spans; i++) {
        const struct template_span *s = &r->spans[i];
        const size_t k = s->origin - (size_t)ORIGIN_MESSAGE;
        if (s->origin == ORIGIN_DATA && s->end - s->begin > longest)
            longest = s->end - s->begin;
        else if (k < n)
            shown[k] = true;
    }
    return longest;
}

// Bytes of a message that are no white space: one without any need not be shown.
static size_t n_visible(const struct buf *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++)
        n += !is_space(text->data[i]);
    return n;
}

// Though it could lead a message.
static bool leaves_out_system(const struct variables *v, const struct template_output *r)
{
    bool shown = false;
    const size_t longest = find_shown(r, 1, &shown);
    return !v->merge_system && uses_system(v) && first_rendered(v) < v->q->n_messages && !shown &&
           n_visible(&v->c->messages[0].text) > longest;
}

// What a tool has found is nothing to lose without a word.
static bool check_results(const struct variables *v, const struct template_output *r,
                          struct error *err)
{
    bool ok = true, *shown = calloc(v->n_index + 1, sizeof *shown);
    if (!shown)
        return error_oom(err, "the places of the messages", v->n_index);
    const size_t longest = find_shown(r, v->n_index, shown);
    for (size_t k = 0; ok && k < v->n_index; k++) {
        const struct message *m = &v->c->messages[v->index[k]];
        if (json_text_is(json_object_get(m->fields, "role"), "tool") && !shown[k] &&
            n_visible(&m->text) > longest)
            ok = error_set(err, ERR_FAIL,
                           "the chat template shows nothing of message %zu, a tool's: expected "
                           "messages of the roles that it knows",
                           v->index[k] + 1);
    }
    free(shown);
    return ok;
}

// The thinking tag that the template, and nobody's message, left open at the end of the prompt.
static const char *open_tag_of(const struct template_output *r)
{
    const char *tag = think_open_tag_at_end(buf_str(&r->text), r->text.len);
    size_t n = r->text.len;
    while (tag && is_space(r->text.data[n - 1]))
        n--;
    for (size_t i = 0; tag && i < r->n_spans; i++)
        if (r->spans[i].end > n - strlen(tag) && r->spans[i].begin < n &&
            r->spans[i].origin != ORIGIN_TEMPLATE)
            return NULL;
    return tag;
}

bool prefix_build(struct conversation *c, const struct prefix_request *q, struct ids *out,
                  const char **open_tag, struct error *err)
{
    if (open_tag)
        *open_tag = NULL;
    if (q->head)
        *q->head = 0;
    if (!c->tmpl)
        return plain_prefix(c, q, out, err);
    const struct template_limits limits = {.cancel = c->cancel};
    struct template_output r = {0};
    struct variables v = {.c = c, .q = q, .merge_system = c->system_merged};
    bool ok = false, raised = false;
    v.index = calloc(q->n_messages + 1, sizeof *v.index);
    v.thinking = calloc(q->n_messages + 1, sizeof *v.thinking);
    if (!v.index || !v.thinking || !variables_prepare(&v)) {
        error_oom(err, "the variables of the chat template", 0);
        goto done;
    }
    ok = template_render(c->tmpl, put_variables, &v, c->now, &limits, &r, &raised, err);
    const bool left_out = ok && leaves_out_system(&v, &r);
    if (left_out || (!ok && raised && c->has_system && !c->system_merged)) {
        // Some templates (Gemma) refuse a system prompt, or pass over it (the first Phi-3): put it
        // before the first message, if that is what they refuse.
        struct error second = {0};
        template_output_release(&r);
        v.merge_system = true;
        ok = (variables_prepare(&v) ||
              error_oom(&second, "the variables of the chat template", v.merged.len)) &&
             template_render(c->tmpl, put_variables, &v, c->now, &limits, &r, &raised, &second);
        c->system_merged = ok;
        if (err && (left_out || second.code == ERR_INTERRUPTED ||
                    second.code == ERR_MEMORY)) // not what the first try found
            *err = second;
    }
    if (!ok) {
        error_prefix(err, raised ? "the chat template refuses" : "the chat template");
        goto done;
    }
    ok = check_results(&v, &r, err) && tokenise(c, q, &r, v.index, v.n_index, out, err);
    if (ok && out->failed)
        ok = error_oom(err, "the prompt's tokens", out->len);
    if (ok && open_tag && q->generation)
        *open_tag = open_tag_of(&r);
done:
    template_output_release(&r);
    variables_release(&v);
    return ok;
}
