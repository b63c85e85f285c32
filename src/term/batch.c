#include "term/batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mapped.h"
#include "base/out.h"
#include "cli/shipped.h"
#include "term/answer_options.h"
#include "term/line_reader.h"
#include "term/sink.h"

void batch_clear_progress(struct batch *b)
{
    if (b->progress)
        out_progress_clear();
    b->progress = false;
}

// Whether standard output is a terminal that was closed. The signal that comes with that may be on
// its way still, where the call is another process (keep.md): it is waited for, a second at most.
static bool hung_up(const struct batch *b)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    if (out_is_terminal(OUT_STDOUT) || errno != EIO)
        return false;
    for (int i = 0; i < 100 && !cancel_asked(b->cancel); i++)
        nanosleep(&moment, NULL);
    return true;
}

// The prompt is released as soon as it is part of the conversation.
static bool answer(struct batch *b, struct buf *prompt, bool line_mode, struct error *err)
{
    const struct options *o = b->opt;
    struct sink s;
    struct answer_params p = answer_options(o);
    sink_init(&s, b);
    sink_take(&s, &p);
    p.prefill = o->prefill;
    p.n_prefill = o->prefill ? strlen(o->prefill) : 0;
    p.constraint = b->shape->constraint;
    enum finish finish = FINISH_INTERRUPTED;
    b->not_obeyed = false;
    struct buf framed = {0};
    bool ok = !b->frame || prompt_fill(b->frame, buf_str(prompt), prompt->len, &framed) ||
              error_oom(err, "the prompt", prompt->len);
    const struct buf *message = b->frame ? &framed : prompt;
    ok = ok && conversation_add(b->conv, ROLE_USER, buf_str(message), message->len, err);
    buf_release(prompt);
    buf_release(&framed);
    if (ok && !conversation_answer(b->conv, &p, &finish, err)) {
        ok = false;
        if (!conversation_last_answer(b->conv))
            conversation_take_back(b->conv);
    }
    const struct session *session = &b->conv->session;
    const struct sink_result r = {.finish = finish,
                                  .answer = conversation_last_answer(b->conv),
                                  .stats = &session->stats,
                                  .n_tokens = seq_len(session->seq),
                                  .seed = o->sampler.seed};
    ok = sink_end(&s, &r, ok, line_mode, err);
    sink_release(&s);
    // Where a signal came, a stream that failed is no more than what came with it: a terminal that
    // was closed.
    if ((ok && finish == FINISH_INTERRUPTED) || (!ok && (hung_up(b) || cancel_asked(b->cancel))))
        ok = error_set(err, ERR_INTERRUPTED, "interrupted");
    else if (ok)
        b->not_obeyed = !shape_obeyed(b->shape, finish, err);
    // (It is said, and kept, nevertheless.)
    if (b->after_turn && (ok || (err && err->code == ERR_INTERRUPTED))) {
        struct error save = {0};
        if (!b->after_turn(b->user, &save) && ok) {
            ok = false;
            if (err)
                *err = save;
        }
    }
    return ok && !b->not_obeyed;
}

bool batch_one(struct batch *b, struct buf *prompt, struct error *err)
{
    return answer(b, prompt, false, err);
}

// Says what is not answered because the line before failed or was interrupted: lines that are
// there, or may come.
static void say_rest(const struct batch *b, struct line_reader *in)
{
    enum { MOST_BLANK = 1000 };
    const size_t number = in->number;
    struct error none;
    const char *text;
    size_t n;
    enum line_next next = LINE_THERE;
    for (int i = 0; i < MOST_BLANK; i++) {
        next = line_reader_next(in, false, &text, &n, &none);
        if (next != LINE_THERE || !batch_is_blank(text, n))
            break;
    }
    if (b->opt->quiet || mapped_failed())
        return;
    if (next == LINE_THERE || next == LINE_TOO_LONG)
        out_say("hokku: what comes behind line %zu is not answered", number);
    else if (next == LINE_NOT_YET)
        out_say("hokku: " LINES_LEFT);
}

bool batch_turns(struct batch *b, int fd, const char *before, struct error *err)
{
    struct line_reader in = {.fd = fd, .cancel = b->cancel};
    struct buf prompt = {0};
    const char *text;
    size_t n, n_blank = 0;
    enum line_next next = LINE_END;
    bool ok = true;
    while (ok && (next = line_reader_next(&in, true, &text, &n, err)) == LINE_THERE) {
        if (batch_is_blank(text, n)) {
            n_blank++;
            continue;
        }
        if (!batch_prompt(before, text, n, &prompt, err) || !answer(b, &prompt, true, err)) {
            ok = false;
            if (!err || err->code != ERR_INTERRUPTED)
                error_prefix(err, "line %zu", in.number);
            say_rest(b, &in);
        }
    }
    if (ok && next == LINE_TOO_LONG) {
        error_prefix(err, "line %zu", in.number);
        say_rest(b, &in);
    }
    ok = ok && next == LINE_END;
    line_reader_release(&in);
    buf_release(&prompt);
    if (ok)
        batch_say_blank(b, n_blank);
    return ok;
}

bool batch_is_blank(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && strchr(" \t\r", text[i]) && text[i])
        i++;
    return i == n;
}

bool batch_prompt(const char *before, const char *text, size_t n, struct buf *out,
                  struct error *err)
{
    buf_clear(out);
    if (before)
        buf_printf(out, "%s\n\n", before);
    buf_append(out, text, n > 0 && text[n - 1] == '\r' ? n - 1 : n);
    return !out->failed || error_oom(err, "a line of standard input", n);
}

void batch_say_blank(const struct batch *b, size_t n_blank)
{
    if (n_blank > 0 && !b->opt->quiet)
        out_say("hokku: %zu blank line%s skipped", n_blank, n_blank == 1 ? "" : "s");
}
