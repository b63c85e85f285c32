#include "cli/shipped.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/format.h"
#include "base/place.h"

static const char input_mark[] = "{{input}}";
static const char builtin_model[] = "builtin/hokku-builtin.gguf";

// Whether the running program lies in the folder it was built in. Anywhere else that folder means
// nothing: who can make one of its name could put a model and prompts there.
static bool in_build_tree(bool *no_memory)
{
    char *exe = realpath("/proc/self/exe", NULL);
    *no_memory |= !exe && errno == ENOMEM;
    char *build = realpath(HOKKU_BUILD_DIR, NULL);
    *no_memory |= !build && errno == ENOMEM;
    size_t n = build ? strlen(build) : 0;
    bool in = exe && build && strncmp(exe, build, n) == 0 && exe[n] == '/';
    free(exe);
    free(build);
    return in;
}

// "prompts/haiku.txt": in the source tree for a program that was not installed, else at the place
// it was built for. Owned by the caller; NULL when there is none, or no memory to know.
static char *shipped_file(const char *relative, bool *no_memory)
{
    struct buf b = {0};
    const char *dir = in_build_tree(no_memory) ? HOKKU_SOURCE_DIR : HOKKU_DATADIR;
    *no_memory |= !buf_printf(&b, "%s/%s", dir, relative);
    if (!*no_memory && access(b.data, R_OK) == 0)
        return b.data;
    buf_release(&b);
    return NULL;
}

char *shipped_model(struct error *err)
{
    bool no_memory = false;
    char *path = shipped_file(builtin_model, &no_memory);
    if (no_memory)
        error_oom(err, "the path of the built-in model", sizeof builtin_model);
    else if (!path)
        error_set(err, ERR_MODEL,
                  "the built-in model (%s) is not installed: name a model with -m FILE",
                  builtin_model);
    return path;
}

// DIR/prompts of the user, DIR being where the configuration is; false: there is no such place.
static bool own_prompts(const struct options *o, struct buf *out)
{
    const char *slash = o->config_file ? strrchr(o->config_file, '/') : NULL;
    return slash && buf_printf(out, "%.*s/prompts", (int)(slash - o->config_file), o->config_file);
}

// Whether "@a, @b" has this name. (An @ stands at the beginning of one, and nowhere else.)
static bool has_name(const char *names, const char *name)
{
    const size_t n = strlen(name);
    const char *at = strstr(names, name);
    while (at && at[n] && at[n] != ',')
        at = strstr(at + n, name);
    return at != NULL;
}

static void list_prompts(const char *path, struct buf *out)
{
    struct dirent **found = NULL;
    const int n_found = path ? scandir(path, &found, NULL, alphasort) : 0;
    for (int i = 0; i < n_found; i++) {
        char name[1 + PLACE_NAME_MAX + 1];
        const char *file = found[i]->d_name;
        const size_t len = strlen(file), n = len > 4 ? len - 4 : 0;
        if (place_is_name(file, n) && strcmp(file + n, ".txt") == 0) {
            snprintf(name, sizeof name, "@%.*s", (int)n, file);
            if (!has_name(buf_str(out), name))
                buf_printf(out, "%s%s", out->len ? ", " : "", name);
        }
        free(found[i]);
    }
    free(found);
}

bool shipped_prompt_names(const struct options *o, struct buf *out)
{
    struct buf own = {0};
    bool no_memory = false;
    char *dir = shipped_file("prompts", &no_memory);
    if (own_prompts(o, &own))
        list_prompts(own.data, out);
    list_prompts(dir, out);
    free(dir);
    buf_release(&own);
    return !out->failed && !no_memory;
}

// Comment lines at the top of a file that comes with hokku say what the prompt is for; they are not
// part of it. (In a text of one's own such a line is a heading.)
static void drop_comments(struct buf *text)
{
    while (text->len > 0 && text->data[0] == '#') {
        const char *end = memchr(text->data, '\n', text->len);
        const size_t n = end ? (size_t)(end - text->data) + 1 : text->len;
        memmove(text->data, text->data + n, text->len - n + 1); // with the NUL
        text->len -= n;
    }
}

// One of the user's own wins. *found: there is one.
static bool read_prompt(const struct options *o, const char *name, struct buf *out, bool *found,
                        struct error *err)
{
    struct buf own = {0};
    char relative[128];
    *found = false;
    if (!place_is_name(name, strlen(name)))
        return true;
    bool ok = true, no_memory = false;
    if (own_prompts(o, &own) && buf_printf(&own, "/%s.txt", name))
        ok = place_read_linked(own.data, 1 << 20, out, found, err);
    else if (own.failed)
        ok = error_oom(err, "the path of a prompt", strlen(name));
    buf_release(&own);
    file_drop_ends(out);
    if (!ok || *found)
        return ok;
    snprintf(relative, sizeof relative, "prompts/%.*s.txt", PLACE_NAME_MAX, name);
    char *path = shipped_file(relative, &no_memory);
    ok = no_memory ? error_oom(err, "the path of a prompt", sizeof relative)
                   : !path || place_read_shipped(path, 1 << 20, out, found, err);
    free(path);
    file_drop_ends(out);
    drop_comments(out);
    return ok;
}

bool shipped_prompt(const struct options *o, const char *name, struct buf *out, struct error *err)
{
    bool found, ok = read_prompt(o, name, out, &found, err);
    const char *nul = ok && found ? memchr(buf_str(out), '\0', out->len) : NULL;
    if (nul) // what stands around a message would end there
        return error_set(err, ERR_USAGE, "@%s: byte %zu is 0x00, expected text", name,
                         (size_t)(nul - out->data) + 1);
    if (!ok || found)
        return ok;
    struct buf names = {0};
    shipped_prompt_names(o, &names);
    char text[PLACE_NAME_MAX + 1]; // all of a name that a prompt may have
    error_set(err, ERR_USAGE, "@%s: %s; there are %s",
              format_text(text, sizeof text, name, strlen(name)),
              place_is_name(name, strlen(name))
                  ? "no such system prompt"
                  : "found a name that no system prompt can have, expected " PLACE_NAME_RULE,
              names.len ? buf_str(&names) : "none");
    buf_release(&names);
    return false;
}

bool prompt_takes_input(const char *prompt)
{
    return strstr(prompt, input_mark) != NULL;
}

bool prompt_fill(const char *prompt, const char *input, size_t n, struct buf *out)
{
    for (const char *mark; (mark = strstr(prompt, input_mark));
         prompt = mark + strlen(input_mark)) {
        buf_append(out, prompt, (size_t)(mark - prompt));
        buf_append(out, input, n);
    }
    return buf_puts(out, prompt);
}
