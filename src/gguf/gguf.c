// Opens GGUF files: the parts of a split model, their maps, and the checks that need all of them
// (duplicate names, overlaps). One part's header is read by parse.c.
#include "gguf/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "base/mapped.h"

struct gguf {
    struct gguf_part *parts; // owned; parts[0] has the model's metadata
    size_t n_parts;
    bool mapped;                 // false: parts[0].map is the caller's memory
    struct gguf_tensor *tensors; // owned; of all parts, in file order
    size_t n_tensors, cap_tensors;
    const struct gguf_kv **kv_by_key;           // owned; sorted
    const struct gguf_tensor **tensors_by_name; // owned; sorted
};

static int str_cmp(struct gguf_str a, struct gguf_str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int kv_cmp(const void *pa, const void *pb)
{
    const struct gguf_kv *const *a = pa, *const *b = pb;
    return str_cmp((*a)->key, (*b)->key);
}

static int tensor_name_cmp(const void *pa, const void *pb)
{
    const struct gguf_tensor *const *a = pa, *const *b = pb;
    return str_cmp((*a)->name, (*b)->name);
}

static int tensor_place_cmp(const void *pa, const void *pb)
{
    const struct gguf_tensor *const *a = pa, *const *b = pb;
    if ((*a)->file != (*b)->file)
        return (*a)->file < (*b)->file ? -1 : 1;
    return ((*a)->offset > (*b)->offset) - ((*a)->offset < (*b)->offset);
}

// Sorted indexes rather than hash tables: the keys come from the file, and no choice of keys can
// make sorting slow.
static bool index_kv(const struct gguf_part *part, const struct gguf_kv ***out, struct error *err)
{
    size_t n = part->n_kv;
    const struct gguf_kv **sorted = malloc((n + 1) * sizeof *sorted);
    if (!sorted)
        return error_oom(err, "metadata index", (n + 1) * sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &part->kv[i];
    qsort(sorted, n, sizeof *sorted, kv_cmp);
    for (size_t i = 1; i < n; i++) {
        if (kv_cmp(&sorted[i - 1], &sorted[i]) == 0) {
            char name[FORMAT_TEXT];
            error_set(err, ERR_MODEL, "metadata key %s appears twice, expected once",
                      format_text(name, sizeof name, sorted[i]->key.data, sorted[i]->key.len));
            free(sorted);
            return false;
        }
    }
    *out = sorted;
    return true;
}

static bool index_tensors(struct gguf *g, struct error *err)
{
    size_t n = g->n_tensors;
    const struct gguf_tensor **sorted = malloc((n + 1) * sizeof *sorted);
    g->tensors_by_name = sorted;
    if (!sorted)
        return error_oom(err, "tensor index", (n + 1) * sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &g->tensors[i];

    char a[FORMAT_TEXT], b[FORMAT_TEXT], x[FORMAT_NUMBER], y[FORMAT_NUMBER];
    qsort(sorted, n, sizeof *sorted, tensor_place_cmp);
    for (size_t i = 1; i < n; i++) {
        const struct gguf_tensor *p = sorted[i - 1], *t = sorted[i];
        if (p->file == t->file && p->offset + p->n_bytes > t->offset)
            return error_set(
                err, ERR_MODEL,
                "tensor %s begins at byte %s, inside tensor %s, which ends at byte %s; "
                "tensors must not overlap",
                format_text(a, sizeof a, t->name.data, t->name.len), format_number(x, t->offset),
                format_text(b, sizeof b, p->name.data, p->name.len),
                format_number(y, p->offset + p->n_bytes));
    }
    qsort(sorted, n, sizeof *sorted, tensor_name_cmp);
    for (size_t i = 1; i < n; i++)
        if (tensor_name_cmp(&sorted[i - 1], &sorted[i]) == 0)
            return error_set(err, ERR_MODEL, "tensor %s appears twice, expected once",
                             format_text(a, sizeof a, sorted[i]->name.data, sorted[i]->name.len));
    return true;
}

static bool map_file(const char *path, struct gguf_part *part, struct error *err)
{
    part->path = strdup(path);
    if (!part->path)
        return error_oom(err, "path", strlen(path) + 1);
    // O_NONBLOCK: opening a FIFO must not wait for a writer; no effect on a regular file.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, ERR_MODEL, "cannot open: %s", strerror(errno));
    struct stat st;
    bool ok = false;
    if (fstat(fd, &st)) {
        error_set(err, ERR_MODEL, "cannot stat: %s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        error_set(err, ERR_MODEL, "is %s, expected a GGUF file",
                  S_ISDIR(st.st_mode)    ? "a directory"
                  : S_ISFIFO(st.st_mode) ? "a pipe (a model is memory-mapped, so it must be a file)"
                                         : "not a regular file");
    } else if (st.st_size == 0) {
        error_set(err, ERR_MODEL, "is empty, expected a GGUF file");
    } else if ((uintmax_t)st.st_size > SIZE_MAX) {
        error_set(err, ERR_MODEL, "is larger than this machine's address space");
    } else {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            error_set(err, errno == ENOMEM ? ERR_MEMORY : ERR_MODEL, "cannot map %lld bytes: %s",
                      (long long)st.st_size, strerror(errno));
        } else {
            mapped_add(map, (size_t)st.st_size, path);
            part->map = map;
            part->size = (size_t)st.st_size;
            ok = true;
        }
    }
    close(fd);
    return ok;
}

// "model-00002-of-00005.gguf": the length before "-00002...", the part's number and their count.
static bool split_name(const char *path, size_t *stem, unsigned *no, unsigned *count)
{
    static const char shape[] = "-ddddd-of-ddddd.gguf";
    size_t n = strlen(path), k = sizeof shape - 1;
    if (n < k)
        return false;
    const char *p = path + n - k;
    for (size_t i = 0; i < k; i++)
        if (shape[i] == 'd' ? p[i] < '0' || p[i] > '9' : p[i] != shape[i])
            return false;
    *stem = n - k;
    return sscanf(p, "-%5u-of-%5u", no, count) == 2;
}

static const struct gguf_kv *part_find(const struct gguf_part *part, const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 0; i < part->n_kv; i++)
        if (part->kv[i].key.len == n && memcmp(part->kv[i].key.data, key, n) == 0)
            return &part->kv[i];
    return NULL;
}

// An integer of part; *out = 0 when absent.
static bool part_int(const struct gguf_part *part, const char *key, uint64_t *out,
                     struct error *err)
{
    const struct gguf_kv *kv = part_find(part, key);
    *out = 0;
    return !kv || gguf_kv_uint(kv, UINT32_MAX, out, err);
}

// A text of part; *out stays as it is when absent.
static bool part_str(const struct gguf_part *part, const char *key, struct gguf_str *out,
                     struct error *err)
{
    const struct gguf_kv *kv = part_find(part, key);
    return !kv || gguf_kv_str(kv, out, err);
}

// Room for one more part; the part is zeroed.
static struct gguf_part *add_part(struct gguf *g, struct error *err)
{
    struct gguf_part *p = realloc(g->parts, (g->n_parts + 1) * sizeof *p);
    if (!p) {
        error_oom(err, "file table", (g->n_parts + 1) * sizeof *p);
        return NULL;
    }
    g->parts = p;
    p[g->n_parts] = (struct gguf_part){0};
    return &p[g->n_parts++];
}

static bool open_part(struct gguf *g, const char *path, enum gguf_types types, struct error *err)
{
    struct gguf_part *part = add_part(g, err);
    return part && map_file(path, part, err) &&
           gguf_parse_part(part, (uint32_t)(g->n_parts - 1), types, &g->tensors, &g->n_tensors,
                           &g->cap_tensors, err);
}

static bool check_part(const struct gguf_part *part, unsigned no, unsigned count, struct error *err)
{
    uint64_t has_no, has_count;
    if (!part_int(part, "split.no", &has_no, err) ||
        !part_int(part, "split.count", &has_count, err))
        return false;
    if (has_count != count)
        return error_set(
            err, ERR_MODEL, "split.count is %llu, expected %u as the file's name says%s",
            (unsigned long long)has_count, count,
            has_count ? "" : " (a file cut into pieces must be joined with cat first)");
    if (has_no != no)
        return error_set(err, ERR_MODEL, "split.no is %llu, expected %u as the file's name says",
                         (unsigned long long)has_no, no);
    return true;
}

// Whether a part is of the model that part 1 is of, as far as it says: parts of two often have
// names that differ in a letter.
static bool check_same(const struct gguf_part *first, const struct gguf_part *part,
                       struct error *err)
{
    uint64_t n = 0, n_first = 0;
    if (!part_int(first, "split.tensors.count", &n_first, err) ||
        !part_int(part, "split.tensors.count", &n, err))
        return false;
    if (part_find(part, "split.tensors.count") && n != n_first)
        return error_set(err, ERR_MODEL, "split.tensors.count is %llu, expected %llu as in part 1",
                         (unsigned long long)n, (unsigned long long)n_first);
    struct gguf_str a = {0}, b = {0};
    if (!part_str(first, "general.architecture", &a, err) ||
        !part_str(part, "general.architecture", &b, err))
        return false;
    char found[FORMAT_TEXT], expected[FORMAT_TEXT];
    if (b.data && (a.len != b.len || (b.len > 0 && memcmp(a.data, b.data, b.len) != 0)))
        return error_set(err, ERR_MODEL,
                         "general.architecture is \"%s\", expected \"%s\" as in part 1",
                         format_text(found, sizeof found, b.data, b.len),
                         format_text(expected, sizeof expected, a.data, a.len));
    return true;
}

// Opens every part. *failed_path (may be NULL at success) names the file an error is about.
static bool open_all(struct gguf *g, const char *path, enum gguf_types types, char *part_path,
                     size_t part_path_size, struct error *err)
{
    size_t stem = 0;
    unsigned no = 1, count = 1;
    bool named = split_name(path, &stem, &no, &count);
    snprintf(part_path, part_path_size, "%s", path);
    if (named && (no < 1 || no > count))
        return error_set(err, ERR_MODEL, "the name says part %u of %u, expected 1 to N of N", no,
                         count);
    if (named && count > 1)
        snprintf(part_path, part_path_size, "%.*s-%05u-of-%05u.gguf", (int)stem, path, 1u, count);
    if (!open_part(g, part_path, types, err))
        return false;
    if (count > 1) {
        if (!check_part(&g->parts[0], 0, count, err))
            return false;
    } else {
        uint64_t has_count;
        if (!part_int(&g->parts[0], "split.count", &has_count, err))
            return false;
        if (has_count > 1)
            return error_set(err, ERR_MODEL,
                             "split.count is %llu, but the file is not named "
                             "NAME-00001-of-%05llu.gguf, so its other parts cannot be found",
                             (unsigned long long)has_count, (unsigned long long)has_count);
    }
    for (unsigned i = 1; i < count; i++) {
        snprintf(part_path, part_path_size, "%.*s-%05u-of-%05u.gguf", (int)stem, path, i + 1,
                 count);
        if (!open_part(g, part_path, types, err))
            return error_prefix(err, "part %u of %u", i + 1, count);
        if (!check_part(&g->parts[i], i, count, err) ||
            !check_same(&g->parts[0], &g->parts[i], err))
            return false;
    }
    uint64_t expected = 0;
    snprintf(part_path, part_path_size, "%s", path);
    if (!part_int(&g->parts[0], "split.tensors.count", &expected, err))
        return false;
    if (count > 1 && expected != g->n_tensors)
        return error_set(err, ERR_MODEL, "split.tensors.count is %llu, but the parts have %zu",
                         (unsigned long long)expected, g->n_tensors);
    return true;
}

// Puts the path in front of a message. The last part of one that would leave no room is the telling
// one.
static bool prefix_path(struct error *err, const char *path)
{
    enum { ROOM = sizeof err->text - 400 };
    size_t n = strlen(path);
    return n > ROOM ? error_prefix(err, "...%s", path + n - ROOM) : error_prefix(err, "%s", path);
}

static bool finish(struct gguf *g, struct error *err)
{
    // With all tensors known their array no longer moves: the indexes may point into it.
    for (size_t i = 1; i < g->n_parts; i++) { // only for the check
        const struct gguf_kv **sorted = NULL;
        bool ok = index_kv(&g->parts[i], &sorted, err);
        free(sorted);
        if (!ok)
            return error_prefix(err, "part %zu", i + 1);
    }
    return index_kv(&g->parts[0], &g->kv_by_key, err) && index_tensors(g, err);
}

static struct gguf *open_path(const char *path, enum gguf_types types, struct error *err)
{
    struct gguf *g = calloc(1, sizeof *g);
    size_t size = strlen(path) + 32;
    char *part_path = malloc(size);
    if (!g || !part_path) {
        error_oom(err, "file table", sizeof *g + size);
    } else {
        g->mapped = true;
        if (open_all(g, path, types, part_path, size, err) && finish(g, err)) {
            free(part_path);
            return g;
        }
        prefix_path(err, part_path);
    }
    free(part_path);
    gguf_free(g);
    return NULL;
}

struct gguf *gguf_open(const char *path, struct error *err)
{
    return open_path(path, GGUF_TYPES_SUPPORTED, err);
}

struct gguf *gguf_open_any_type(const char *path, struct error *err)
{
    return open_path(path, GGUF_TYPES_ANY, err);
}

struct gguf *gguf_open_memory(const void *data, size_t n_bytes, const char *label,
                              struct error *err)
{
    struct gguf *g = calloc(1, sizeof *g);
    struct gguf_part *part = g ? add_part(g, err) : NULL;
    if (part)
        part->path = strdup(label);
    if (!part || !part->path) {
        error_oom(err, "file table", sizeof *g);
    } else {
        part->map = data;
        part->size = n_bytes;
        if (gguf_parse_part(part, 0, GGUF_TYPES_SUPPORTED, &g->tensors, &g->n_tensors,
                            &g->cap_tensors, err) &&
            finish(g, err))
            return g;
        prefix_path(err, label);
    }
    gguf_free(g);
    return NULL;
}

void gguf_free(struct gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_parts; i++) {
        struct gguf_part *p = &g->parts[i];
        if (g->mapped && p->map) {
            mapped_remove(p->map);
            munmap((void *)p->map, p->size);
        }
        free(p->path);
        free(p->kv);
    }
    free(g->parts);
    free(g->tensors);
    free(g->kv_by_key);
    free(g->tensors_by_name);
    free(g);
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->parts[0].version;
}

uint32_t gguf_alignment(const struct gguf *g)
{
    return g->parts[0].alignment;
}

size_t gguf_n_files(const struct gguf *g)
{
    return g->n_parts;
}

const char *gguf_file_path(const struct gguf *g, size_t i)
{
    return g->parts[i].path;
}

uint64_t gguf_file_bytes(const struct gguf *g, size_t i)
{
    return g->parts[i].size;
}

const void *gguf_file_map(const struct gguf *g, size_t i)
{
    return g->parts[i].map;
}

uint64_t gguf_header_bytes(const struct gguf *g, size_t i)
{
    return g->parts[i].header_bytes;
}

uint64_t gguf_data_offset(const struct gguf *g, size_t i)
{
    return g->parts[i].data_offset;
}

size_t gguf_n_kv(const struct gguf *g)
{
    return g->parts[0].n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    return &g->parts[0].kv[i];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    const struct gguf_kv wanted = {.key = {key, strlen(key)}}, *p = &wanted;
    const struct gguf_kv **found =
        bsearch(&p, g->kv_by_key, g->parts[0].n_kv, sizeof *g->kv_by_key, kv_cmp);
    return found ? *found : NULL;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    const struct gguf_tensor wanted = {.name = {name, strlen(name)}}, *p = &wanted;
    const struct gguf_tensor **found =
        bsearch(&p, g->tensors_by_name, g->n_tensors, sizeof *g->tensors_by_name, tensor_name_cmp);
    return found ? *found : NULL;
}
