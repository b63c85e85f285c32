#include "editor/completion.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/termsafe.h"

enum { LIST_MAX = 200 };

void completions_release(struct completions *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->items[i]);
    free(c->items);
    *c = (struct completions){0};
}

void completions_add(struct completions *c, const char *name, size_t n)
{
    size_t n_word = strlen(c->word);
    if (n < n_word || memcmp(name, c->word, n_word) != 0 || !termsafe_all_plain(name, n) ||
        !array_grow(NULL, &c->items, c->n, &c->cap, sizeof *c->items))
        return;
    char *copy = strndup(name, n);
    if (copy)
        c->items[c->n++] = copy;
}

size_t completions_word(const char *line)
{
    size_t begin = 0;
    char quote = 0;
    for (size_t i = 0; line[i]; i++) {
        char c = line[i], before = i > 0 ? line[i - 1] : ' ';
        if (c == '\\' && quote != '\'' && line[i + 1]) {
            i++;
        } else if (quote) {
            quote = c == quote ? 0 : quote;
        } else if (strchr(" \t\n", c)) {
            begin = i + 1;
        } else if ((c == '"' || c == '\'') && strchr(" \t\n", before)) {
            quote = c;
            begin = i;
        }
    }
    return begin;
}

char completions_quote(const struct completions *c)
{
    return c->word[0] == '"' || c->word[0] == '\'' ? c->word[0] : 0;
}

// What a word with backslashes, and perhaps ~, stands for. What is quoted begins after its quote.
static void plain_path(const char *word, size_t n, char quote, const char *home, struct buf *out)
{
    size_t i = quote ? 1 : 0;
    if (home && n > 1 && word[0] == '~' && word[1] == '/') {
        buf_puts(out, home);
        i = 1;
    }
    for (; i < n; i++) {
        i += word[i] == '\\' && quote != '\'' && i + 1 < n;
        buf_putc(out, word[i]);
    }
}

void completions_escape(struct buf *out, const char *name, char quote)
{
    const char *special = quote == '"' ? "\"\\" : quote ? "" : " \t'\"\\";
    for (; *name; name++) {
        if (strchr(special, *name))
            buf_putc(out, '\\');
        buf_putc(out, *name);
    }
}

void completions_add_files(struct completions *c, const char *home)
{
    char quote = completions_quote(c);
    const char *slash = strrchr(c->word, '/'), *leaf = slash ? slash + 1 : c->word + (quote != 0);
    size_t n_typed = (size_t)(leaf - c->word), n_dir;
    struct buf path = {0}, name = {0};
    plain_path(c->word, n_typed, quote, home, &path);
    n_dir = path.len;
    DIR *d = opendir(n_dir > 0 ? buf_str(&path) : ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' && *leaf != '.')
            continue;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (quote == '\'' && strchr(e->d_name, '\'')) // nothing stands for it there
            continue;
        path.len = n_dir;
        buf_puts(&path, e->d_name);
        buf_clear(&name);
        buf_append(&name, c->word, n_typed);
        completions_escape(&name, e->d_name, quote);
        if (stat(buf_str(&path), &st) == 0 && S_ISDIR(st.st_mode))
            buf_putc(&name, '/');
        if (!path.failed && !name.failed)
            completions_add(c, name.data, name.len);
    }
    if (d)
        closedir(d);
    buf_release(&path);
    buf_release(&name);
}

size_t completions_common(const struct completions *c)
{
    size_t n = c->n > 0 ? strlen(c->items[0]) : 0;
    for (size_t i = 1; i < c->n; i++) {
        size_t k = 0;
        while (k < n && c->items[i][k] == c->items[0][k])
            k++;
        n = k;
    }
    while (n > 0 && c->n > 0 && ((unsigned char)c->items[0][n] & 0xC0) == 0x80)
        n--;
    // A backslash belongs to what follows it.
    size_t slashes = 0;
    while (slashes < n && c->items[0][n - 1 - slashes] == '\\')
        slashes++;
    return c->n > 1 ? n - slashes % 2 : n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void completions_list(const struct completions *c, size_t cols, struct buf *out)
{
    struct buf safe = {0};
    size_t widest = 0, n = c->n < LIST_MAX ? c->n : LIST_MAX;
    // Of a path, its last part is what differs.
    const char *slash = strrchr(c->word, '/');
    size_t skip = slash && slash != c->word ? (size_t)(slash + 1 - c->word) : 0;
    if (c->n > 0)
        qsort(c->items, c->n, sizeof *c->items, by_name);
    for (size_t pass = 0; pass < 2; pass++) {
        size_t per_row = widest + 2 < cols ? cols / (widest + 2) : 1;
        for (size_t i = 0; i < n; i++) {
            buf_clear(&safe);
            termsafe_text(c->items[i] + skip, strlen(c->items[i] + skip), true, &safe);
            size_t w = termsafe_width(buf_str(&safe), safe.len);
            if (pass == 0) {
                widest = w > widest ? w : widest;
                continue;
            }
            buf_append(out, buf_str(&safe), safe.len);
            bool last = i % per_row == per_row - 1 || i == n - 1;
            for (; w < widest + 2 && !last; w++)
                buf_putc(out, ' ');
            if (last)
                buf_puts(out, "\n");
        }
    }
    if (c->n > n)
        buf_printf(out, "... and %zu more\n", c->n - n);
    buf_release(&safe);
}
