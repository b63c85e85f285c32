// The Hub's answers: the file list, its pages, names and checksums.
#include "hub/listing.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/format.h"
#include "base/json_text.h"

void hub_listing_release(struct hub_listing *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n; i++)
        free(l->files[i].path);
    free(l->files);
    *l = (struct hub_listing){0};
}

bool hub_listing_add(struct hub_listing *l, const char *path, uint64_t size, const char *sha256,
                     struct error *err)
{
    if (l->n == HUB_MAX_FILES)
        return error_set(err, ERR_FAIL, "the repository has more than %d GGUF files",
                         HUB_MAX_FILES);
    if (!array_grow(NULL, &l->files, l->n, &l->cap, sizeof *l->files))
        return error_oom(err, "the list of files", (l->n + 1) * sizeof *l->files);
    struct hub_file *f = &l->files[l->n];
    *f = (struct hub_file){.path = strdup(path), .size = size};
    if (!f->path)
        return error_oom(err, "the list of files", strlen(path));
    if (sha256)
        hub_sha256_text(sha256, f->sha256);
    l->n++;
    return true;
}

const struct hub_file *hub_listing_find(const struct hub_listing *l, const char *path)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->files[i].path, path) == 0)
            return &l->files[i];
    return NULL;
}

bool hub_is_gguf(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcasecmp(path + n - 5, ".gguf") == 0;
}

// A name that would reach outside the directory it is put in. Told apart from names that are merely
// unusual, because no honest server sends one.
static bool escapes(const char *path)
{
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F || *p == '\\')
            return true;
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return true;
        p += n;
        if (!*p)
            return false;
    }
}

bool hub_path_ok(const char *path)
{
    if (strlen(path) >= HUB_MAX_PATH || !hub_is_gguf(path) || escapes(path) || *path == '.' ||
        strstr(path, "/."))
        return false;
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p > 0x7E)
            return false;
    return true;
}

bool hub_sha256_text(const char *text, char out[SHA256_HEX])
{
    out[0] = '\0';
    if (strncmp(text, "W/", 2) == 0)
        text += 2;
    bool quoted = *text == '"';
    text += quoted;
    for (int i = 0; i < SHA256_HEX - 1; i++)
        if (!isxdigit((unsigned char)text[i]))
            return false;
    if (strcmp(text + SHA256_HEX - 1, quoted ? "\"" : "") != 0)
        return false;
    for (int i = 0; i < SHA256_HEX - 1; i++)
        out[i] = (char)tolower((unsigned char)text[i]);
    out[SHA256_HEX - 1] = '\0';
    return true;
}

static bool add_entry(struct hub_listing *l, const json_t *entry, struct error *err)
{
    const json_t *path = json_object_get(entry, "path"), *type = json_object_get(entry, "type");
    if (!json_is_string(path) || !json_is_string(type))
        return error_set(err, ERR_FAIL,
                         "the server's list of files has an entry without path or type");
    const char *name = json_string_value(path);
    // jansson refuses \u0000, so the length is that of the C string.
    if (strcmp(json_string_value(type), "file") != 0 || !hub_is_gguf(name))
        return true;
    char shown[FORMAT_TEXT];
    format_text(shown, sizeof shown, name, strlen(name));
    if (escapes(name))
        return error_set(err, ERR_FAIL,
                         "the server names a file \"%s\", which would leave the cache: refused",
                         shown);
    if (!hub_path_ok(name)) { // hidden, too long, or not ASCII: cannot be chosen
        memcpy(l->left_out, shown, sizeof shown);
        return true;
    }
    if (hub_listing_find(l, name))
        return error_set(err, ERR_FAIL, "the server lists %s twice: try again, or name another",
                         shown);
    const json_t *lfs = json_object_get(entry, "lfs"), *size = json_object_get(entry, "size");
    const json_t *oid = json_object_get(lfs, "oid");
    if (json_is_integer(json_object_get(lfs, "size")))
        size = json_object_get(lfs, "size");
    if (!json_is_integer(size) || json_integer_value(size) <= 0)
        return error_set(err, ERR_FAIL, "the server tells no size for %s", shown);
    const char *sha = json_string_value(oid);
    if (sha && strncmp(sha, "sha256:", 7) == 0)
        sha += 7;
    return hub_listing_add(l, name, (uint64_t)json_integer_value(size), sha, err);
}

bool hub_listing_parse(struct hub_listing *l, const char *json, size_t n, struct error *err)
{
    json_error_t e;
    json_t *root = json_read(json, n, 0, &e);
    if (!root && json_no_memory(&e))
        return error_oom(err, "the list of files", n);
    if (!root) {
        char shown[FORMAT_TEXT];
        return error_set(err, ERR_FAIL, "the server's list of files is no JSON: %s, at byte %d",
                         format_text(shown, sizeof shown, e.text, strlen(e.text)), e.position);
    }
    bool ok = json_is_array(root) ||
              error_set(err, ERR_FAIL,
                        "the server's list of files is no JSON array: is this a Hub's endpoint?");
    for (size_t i = 0; ok && i < json_array_size(root); i++)
        ok = add_entry(l, json_array_get(root, i), err);
    json_decref(root);
    return ok;
}

bool hub_architecture(const char *json, size_t n, struct buf *out)
{
    json_error_t why;
    json_t *root = json_read(json, n, 0, &why);
    const char *name =
        json_string_value(json_object_get(json_object_get(root, "gguf"), "architecture"));
    bool ok = name && *name && buf_puts(out, name);
    json_decref(root);
    return ok;
}

bool hub_link_next(const char *header, struct buf *url)
{
    // Link: <URL>; rel="next", <URL>; rel="first"
    for (const char *p = header; (p = strchr(p, '<'));) {
        const char *begin = ++p, *end = strchr(p, '>');
        if (!end)
            return false;
        const char *next = strchr(end, '<');
        size_t n = next ? (size_t)(next - end) : strlen(end);
        for (size_t i = 0; i + 8 <= n; i++)
            if (strncasecmp(end + i, "rel=next", 8) == 0 ||
                (i + 10 <= n && strncasecmp(end + i, "rel=\"next\"", 10) == 0))
                return buf_append(url, begin, (size_t)(end - begin)) && url->len > 0;
        p = end;
    }
    return false;
}

static bool name_ok(const char *s, size_t n)
{
    if (n == 0 || n >= HUB_NAME || s[0] == '.' || s[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i]))
            return false;
    return true;
}

bool hub_url_public(const char *url, struct buf *out)
{
    const char *colon = strstr(url, "://"), *host = colon ? colon + 3 : url;
    const char *end = host + strcspn(host, "/?#");
    for (const char *p = host; colon && p < end; p++)
        if (*p == '@')
            host = p + 1;
    buf_append(out, url, colon ? (size_t)(colon + 3 - url) : 0);
    return buf_append(out, host, strcspn(host, "?#"));
}

bool hub_spec_parse(const char *text, struct hub_spec *s, struct error *err)
{
    *s = (struct hub_spec){0};
    const char *colon = strchr(text, ':'), *slash = strchr(text, '/');
    size_t end = colon ? (size_t)(colon - text) : strlen(text);
    size_t user = slash ? (size_t)(slash - text) : end;
    size_t quant = colon ? strlen(colon + 1) : 1;
    bool ok = user < end && name_ok(text, user) && name_ok(slash + 1, end - user - 1) &&
              quant > 0 && quant < sizeof s->quant;
    for (size_t i = 0; ok && colon && i < quant; i++)
        ok = colon[i + 1] > ' ' && colon[i + 1] < 0x7F && colon[i + 1] != '\\';
    if (!ok) {
        char shown[FORMAT_TEXT];
        struct buf url = {0};
        if (strstr(text, "://") && hub_url_public(text, &url))
            text = url.data;
        error_set(err, ERR_USAGE,
                  "found \"%s\", expected USER/REPO or USER/REPO:QUANT, as in "
                  "Qwen/Qwen2.5-0.5B-Instruct-GGUF:q4_k_m, or an https:// address",
                  format_text(shown, sizeof shown, text, strlen(text)));
        buf_release(&url);
        return false;
    }
    memcpy(s->user, text, user);
    memcpy(s->repo, slash + 1, end - user - 1);
    memcpy(s->label, text, end);
    for (size_t i = 0; colon && i < quant; i++)
        s->quant[i] = (char)tolower((unsigned char)colon[i + 1]);
    return true;
}
