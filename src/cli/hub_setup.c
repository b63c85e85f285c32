#include "cli/hub_setup.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/decimal.h"
#include "base/file.h"
#include "base/format.h"
#include "base/out.h"
#include "base/place.h"
#include "model/model.h"

static const double redraw_s = 0.1, plain_s = 10;
enum { MAX_TOKEN = 4096 };

static void clear_line(struct hub_setup *h)
{
    if (h->line_open)
        out_progress_clear();
    h->line_open = false;
}

static void on_note(void *user, const char *line)
{
    struct hub_setup *h = user;
    if (h->quiet)
        return;
    clear_line(h);
    char shown[1100];
    out_say("hokku: %s", format_text(shown, sizeof shown, line, strlen(line)));
}

static void format_duration(char out[32], double s)
{
    unsigned long n = s < 0 ? 0 : s > 359999 ? 359999 : (unsigned long)(s + 0.5);
    if (n >= 3600)
        snprintf(out, 32, "%lu:%02lu:%02lu", n / 3600, n / 60 % 60, n % 60);
    else
        snprintf(out, 32, "%lu:%02lu", n / 60, n % 60);
}

// "name  45 % [=====>     ] 180.2 MB of 397.8 MB, 35.2 MB/s, 0:06 left", as much as fits
static void draw(struct hub_setup *h, const struct hub_progress *p)
{
    char done[FORMAT_NUMBER], total[FORMAT_NUMBER], rate[FORMAT_NUMBER], left[32], tail[200],
        bar[64] = "";
    size_t known = out_columns(OUT_STDERR);
    int columns = known ? (int)known : 80;
    format_bytes(rate, (uint64_t)h->rate);
    format_bytes(done, p->done);
    if (p->total && h->rate > 0) {
        format_duration(left, (double)(p->total - p->done) / h->rate);
        snprintf(tail, sizeof tail, "%3.0f %% %s of %s, %s/s, %s left",
                 100.0 * (double)p->done / (double)p->total, done, format_bytes(total, p->total),
                 rate, left);
    } else {
        snprintf(tail, sizeof tail, "%s, %s/s", done, rate);
    }
    int room = columns - 1 - (int)strlen(tail), name = room / 2;
    if (name > (int)strlen(p->file))
        name = (int)strlen(p->file);
    if (name < 0)
        name = 0;
    int width = room - name - 5;
    if (p->total && width >= 10) {
        width = width > 40 ? 40 : width;
        int full = (int)((double)width * (double)p->done / (double)p->total);
        snprintf(bar, sizeof bar, " [%.*s%*s]", full, "########################################",
                 width - full, "");
    }
    out_progress("%.*s%s %s", name, p->file, bar, tail);
    h->line_open = true;
}

static void measure(struct hub_setup *h, const struct hub_progress *p, double now)
{
    double dt = now - h->rate_at;
    if (dt < 0.5)
        return;
    double rate = p->done > h->rate_bytes ? (double)(p->done - h->rate_bytes) / dt : 0;
    double weight = dt > 5 ? 1 : dt / 5; // about the last five seconds
    h->rate = h->rate > 0 ? h->rate + weight * (rate - h->rate) : rate;
    h->rate_at = now;
    h->rate_bytes = p->done;
}

static void on_progress(void *user, const struct hub_progress *p)
{
    struct hub_setup *h = user;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], part[48] = "", took[32];
    double now = clock_now();
    if (h->quiet)
        return;
    if (p->n_part > 1)
        snprintf(part, sizeof part, " (part %u of %u)", p->part, p->n_part);
    if (h->file != p->file || h->part != p->part) { // a new file
        h->file = p->file;
        h->part = p->part;
        h->began = h->shown = h->rate_at = now;
        h->rate_bytes = p->done;
        h->rate = 0;
        out_say("%s %s%s%s%s%s%s", p->checking ? "checking" : "downloading", p->file, part,
                p->total ? ", " : "", p->total ? format_bytes(a, p->total) : "",
                p->resumed ? ", going on after " : "",
                p->resumed ? format_bytes(b, p->resumed) : "");
    }
    measure(h, p, now);
    if (p->finished) {
        clear_line(h);
        format_duration(took, now - h->began);
        out_say("%s %s%s, %s in %s", p->checking ? "checked" : "downloaded", p->file, part,
                format_bytes(a, p->done), took);
        h->file = NULL;
    } else if (h->tty && (now - h->shown >= redraw_s || (p->total && p->done == p->total))) {
        h->shown = now;
        draw(h, p);
    } else if (!h->tty && now - h->shown >= plain_s) {
        h->shown = now;
        out_say("%s: %s%s%s, %s/s", p->file, format_bytes(a, p->done), p->total ? " of " : "",
                p->total ? format_bytes(b, p->total) : "", format_bytes(took, (uint64_t)h->rate));
    }
}

// HF_TOKEN, or the file that `huggingface-cli login` writes. The user may name another one by
// HF_TOKEN_PATH, which may be a link, as mounted secrets are.
static void read_token(struct hub_setup *h, const struct hub_environment *env)
{
    struct buf path = {0};
    struct error why = {0};
    bool found, ok = true;
    if (env->token && *env->token) {
        buf_puts(&h->token, env->token);
    } else if (env->token_path && *env->token_path) {
        ok = file_read(env->token_path, MAX_TOKEN, &h->token, &why);
        if (!ok && access(env->token_path, F_OK) == 0) // (no such file: no token)
            on_note(h, why.text);
    } else if (env->home && buf_printf(&path, "%s/token", env->home)) {
        ok = place_read(path.data, MAX_TOKEN, &h->token, &found, &why);
        if (!ok)
            on_note(h, why.text);
    }
    if (!ok)
        buf_clear(&h->token);
    size_t begin = strspn(buf_str(&h->token), " \t\r\n");
    if (begin) {
        memmove(h->token.data, h->token.data + begin, h->token.len - begin + 1);
        h->token.len -= begin;
    }
    while (h->token.len && isspace((unsigned char)h->token.data[h->token.len - 1]))
        h->token.data[--h->token.len] = '\0';
    buf_release(&path);
}

bool hub_setup_init(struct hub_setup *h, const struct options *o, const struct cancel *cancel,
                    struct error *err)
{
    const struct hub_environment *env = &o->hub;
    *h = (struct hub_setup){.quiet = o->quiet, .tty = out_is_terminal(OUT_STDERR) && !o->dumb};
    unsigned long stall = 0;
    if (!place_need(o->cache_dir, "downloaded models", "XDG_CACHE_HOME", err))
        return false;
    if (env->timeout && *env->timeout) {
        stall = strtoul(env->timeout, NULL, 10);
        if (!decimal_whole(env->timeout) || stall == 0 || stall > 86400)
            return error_set(err, ERR_USAGE,
                             "HF_HUB_DOWNLOAD_TIMEOUT: found \"%.60s\", expected seconds, 1 to "
                             "86400",
                             env->timeout);
    }
    read_token(h, env);
    if (env->cache && *env->cache)
        buf_puts(&h->hf_cache, env->cache);
    else if (env->home)
        buf_printf(&h->hf_cache, "%s/hub", env->home);
    if (h->token.failed || h->hf_cache.failed)
        return error_oom(err, "the Hub's settings", 4096);
    h->opt = (struct hub_options){
        .endpoint = env->endpoint,
        .token = h->token.len ? h->token.data : NULL,
        .cache_dir = o->cache_dir,
        .hf_cache_dir = h->hf_cache.data,
        .state_dir = o->state_dir,
        .ca_file = env->ca_file && *env->ca_file ? env->ca_file : NULL,
        .stall_s = (unsigned)stall,
        .max_bytes = o->max_bytes,
        .allow_http = o->allow_http,
        .offline = o->offline,
        .cancel = cancel,
        .runs = model_knows,
        .progress = on_progress,
        .note = on_note,
        .user = h,
    };
    return true;
}

void hub_setup_release(struct hub_setup *h)
{
    if (!h)
        return;
    clear_line(h);
    buf_release(&h->token);
    buf_release(&h->hf_cache);
    *h = (struct hub_setup){0};
}
