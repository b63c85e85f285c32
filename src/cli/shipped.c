#include "cli/shipped.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/place.h"

static const char builtin_model[] = "builtin/hokku-builtin.gguf";

// Whether the running program lies in the folder it was built in. Anywhere else that folder means
// nothing: who can make one of its name could put a model and prompts there.
static bool in_build_tree(void)
{
    char *exe = realpath("/proc/self/exe", NULL), *build = realpath(HOKKU_BUILD_DIR, NULL);
    size_t n = build ? strlen(build) : 0;
    bool in = exe && build && strncmp(exe, build, n) == 0 && exe[n] == '/';
    free(exe);
    free(build);
    return in;
}

// In the source tree for a program that was not installed, else at the place it was built for.
char *shipped_file(const char *relative)
{
    struct buf b = {0};
    buf_printf(&b, "%s/%s", in_build_tree() ? HOKKU_SOURCE_DIR : HOKKU_DATADIR, relative);
    if (!b.failed && access(b.data, R_OK) == 0)
        return b.data;
    buf_release(&b);
    return NULL;
}

char *shipped_model(struct error *err)
{
    char *path = shipped_file(builtin_model);
    if (!path)
        error_set(err, ERR_MODEL,
                  "the built-in model (%s) is not installed: name a model with -m FILE",
                  builtin_model);
    return path;
}

bool shipped_prompt_names(struct buf *out)
{
    char *dir = shipped_file("prompts");
    DIR *d = dir ? opendir(dir) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len > 4 && strcmp(e->d_name + len - 4, ".txt") == 0)
            buf_printf(out, "%s@%.*s", out->len ? ", " : "", (int)len - 4, e->d_name);
    }
    if (d)
        closedir(d);
    free(dir);
    return !out->failed;
}

bool shipped_prompt(const char *name, struct buf *out, struct error *err)
{
    char relative[128];
    bool plain =
        *name != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(name);
    snprintf(relative, sizeof relative, "prompts/%s.txt", plain ? name : "-");
    char *path = shipped_file(relative);
    if (path) {
        bool found, ok = place_read_shipped(path, 1 << 20, out, &found, err);
        free(path);
        // Comment lines at the top say what the prompt is for; they are not part of it.
        while (ok && out->len && out->data[0] == '#') {
            char *end = memchr(out->data, '\n', out->len);
            size_t n = end ? (size_t)(end - out->data) + 1 : out->len;
            memmove(out->data, out->data + n, out->len - n);
            out->len -= n;
            out->data[out->len] = '\0';
        }
        while (ok && out->len && (out->data[out->len - 1] == '\n'))
            out->data[--out->len] = '\0';
        return ok;
    }
    struct buf names = {0};
    shipped_prompt_names(&names);
    error_set(err, ERR_USAGE, "-sys @%.60s: no such system prompt; there are %s", name,
              names.len ? buf_str(&names) : "none");
    buf_release(&names);
    return false;
}
