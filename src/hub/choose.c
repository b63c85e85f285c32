// Which file of a repository is meant: quantisation names, split files, the default.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/format.h"
#include "hub/listing.h"

// Bits per weight of the mixes that hokku can run, as the files of common models have them; the
// default is chosen by them, so what is not here is only taken by name.
static const struct {
    const char *tag;
    int centibits;
} mixes[] = {
    {"Q2_K", 335},    {"Q2_K_S", 316},  {"Q2_K_L", 340},    {"Q3_K_S", 364},  {"Q3_K_M", 406},
    {"Q3_K_L", 430},  {"Q3_K_XL", 440}, {"IQ4_XS", 446},    {"IQ4_NL", 468},  {"Q4_0", 466},
    {"Q4_K_S", 467},  {"Q4_K_M", 489},  {"Q4_K_L", 495},    {"Q4_K_XL", 500}, {"Q4_1", 510},
    {"Q5_0", 554},    {"Q5_K_S", 554},  {"Q5_K_M", 569},    {"Q5_K_L", 575},  {"Q5_K_XL", 580},
    {"Q5_1", 600},    {"Q6_K", 656},    {"Q6_K_L", 660},    {"Q6_K_XL", 680}, {"IQ1_S", 200},
    {"IQ1_M", 215},   {"IQ2_XXS", 238}, {"IQ2_XS", 259},    {"IQ2_S", 274},   {"IQ2_M", 293},
    {"IQ3_XXS", 325}, {"IQ3_XS", 350},  {"IQ3_S", 366},     {"IQ3_M", 376},   {"TQ1_0", 210},
    {"TQ2_0", 240},   {"MXFP4", 430},   {"MXFP4_MOE", 430}, {"NVFP4", 455},
};
static const char preferred[] = "Q4_K_M";

// STEM-ddddd-of-ddddd.gguf, whatever the numbers are.
static bool split_shape(const char *path, size_t *stem, unsigned *no, unsigned *count)
{
    static const char pattern[] = "-ddddd-of-ddddd.gguf";
    size_t n = strlen(path), tail = sizeof pattern - 1;
    if (n <= tail)
        return false;
    const char *p = path + n - tail;
    for (size_t i = 0; i < tail; i++)
        if (pattern[i] == 'd' && i < 15 ? !isdigit((unsigned char)p[i])
                                        : tolower((unsigned char)p[i]) != pattern[i])
            return false;
    *stem = n - tail;
    *no = (unsigned)strtoul(p + 1, NULL, 10);
    *count = (unsigned)strtoul(p + 10, NULL, 10);
    return true;
}

bool hub_split_name(const char *path, size_t *stem, unsigned *no, unsigned *count)
{
    size_t n_stem;
    unsigned i, n;
    if (!split_shape(path, &n_stem, &i, &n) || i == 0 || i > n)
        return false;
    *stem = n_stem;
    *no = i;
    *count = n;
    return true;
}

bool hub_split_check(const char *path, struct error *err)
{
    size_t stem;
    unsigned no, count;
    if (!split_shape(path, &stem, &no, &count) || (no > 0 && no <= count))
        return true;
    char n[16] = "N";
    if (count > 0)
        snprintf(n, sizeof n, "%u", count);
    return error_set(err, ERR_FAIL,
                     "%s is numbered %u of %u, expected 1 to %s of %s as parts of a model are: "
                     "name another file",
                     path, no, count, n, n);
}

bool hub_split_part(const char *path, unsigned no, struct buf *out)
{
    size_t stem;
    unsigned old, count;
    if (!hub_split_name(path, &stem, &old, &count))
        return buf_puts(out, path);
    return buf_append(out, path, stem) && buf_printf(out, "-%05u%s", no, path + stem + 6);
}

// Length of a quantisation name at s, 0 if there is none: [IT]?Qn(_piece)*, BF16, F16, F32 ...
static size_t tag_length(const char *s)
{
    static const char *const plain[] = {"BF16", "FP16",      "F16",   "FP32",
                                        "F32",  "MXFP4_MOE", "MXFP4", "NVFP4"};
    static const char *const pieces[] = {"XXS", "XXL", "XS", "XL", "NL", "K", "S",
                                         "M",   "L",   "0",  "1",  "4",  "8"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strncasecmp(s, plain[i], strlen(plain[i])) == 0 &&
            !isalnum((unsigned char)s[strlen(plain[i])]))
            return strlen(plain[i]);
    size_t n = strchr("iItT", *s) && *s ? 1 : 0;
    if (tolower((unsigned char)s[n]) != 'q' || s[n + 1] < '1' || s[n + 1] > '8')
        return 0;
    n += 2;
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; !more && s[n] == '_' && i < sizeof pieces / sizeof *pieces; i++) {
            size_t k = strlen(pieces[i]);
            if (strncasecmp(s + n + 1, pieces[i], k) == 0 &&
                !isalnum((unsigned char)s[n + 1 + k])) {
                n += 1 + k;
                more = true;
            }
        }
    }
    return isalnum((unsigned char)s[n]) ? 0 : n;
}

void hub_tag(const char *path, char out[HUB_TAG])
{
    const char *slash = strrchr(path, '/');
    out[0] = '\0';
    // The last one in the file's name; without one there, the last in its directory's.
    for (int where = 0; where < 2 && !*out; where++) {
        const char *begin = where == 0 && slash ? slash + 1 : path;
        const char *end = where == 0 || !slash ? path + strlen(path) : slash;
        for (const char *p = begin; p < end; p++) {
            if (p > path && !strchr("-._/ ", p[-1]))
                continue;
            size_t n = tag_length(p);
            if (n == 0 || n + 4 >= HUB_TAG || p + n > end)
                continue;
            bool ud = p - begin >= 3 && strncasecmp(p - 3, "UD-", 3) == 0;
            size_t k = (size_t)snprintf(out, HUB_TAG, "%s%.*s", ud ? "UD-" : "", (int)n, p);
            for (size_t i = 0; i < k; i++)
                out[i] = (char)toupper((unsigned char)out[i]);
            p += n - 1;
        }
    }
    char *fp = strstr(out, "FP");
    if (fp && fp[2] != '4') // FP16 is F16, but MXFP4 and NVFP4 are called so
        memmove(fp + 1, fp + 2, strlen(fp + 2) + 1);
}

static bool contains(const char *text, const char *word)
{
    return strcasestr(text, word) != NULL;
}

// A file that can be asked for: not a projector, not statistics, not a later part.
static bool is_head(const struct hub_file *f)
{
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
    size_t stem;
    unsigned no, count;
    if (contains(name, "mmproj") || strncasecmp(name, "imatrix", 7) == 0)
        return false;
    return !hub_split_name(f->path, &stem, &no, &count) || no == 1;
}

static const char *without_ud(const char *tag)
{
    return strncmp(tag, "UD-", 3) == 0 ? tag + 3 : tag;
}

enum match { BY_NAME, BY_TAG, BY_TAG_WITHOUT_UD, ANY };

static bool matches(const struct hub_file *f, enum match how, const char *quant)
{
    char tag[HUB_TAG];
    const char *slash = strrchr(f->path, '/');
    hub_tag(f->path, tag);
    switch (how) {
    case BY_NAME:
        return strcasecmp(f->path, quant) == 0 || (slash && strcasecmp(slash + 1, quant) == 0);
    case BY_TAG:
        return strcasecmp(tag, quant) == 0;
    case BY_TAG_WITHOUT_UD:
        return *tag && strcasecmp(without_ud(tag), quant) == 0;
    case ANY:
        break;
    }
    return true;
}

static size_t count_matches(const struct hub_listing *l, enum match how, const char *quant,
                            size_t *first)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (is_head(&l->files[i]) && matches(&l->files[i], how, quant) && n++ == 0)
            *first = i;
    return n;
}

// "Q4_K_M, Q8_0, ..." or, where these do not tell the files apart, the files' names.
static void list_choices(const struct hub_listing *l, enum match how, const char *quant,
                         struct buf *out)
{
    enum { MOST = 700 };
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct hub_file *f = &l->files[i];
        if (!is_head(f) || !matches(f, how, quant))
            continue;
        char tag[HUB_TAG];
        size_t ignored;
        hub_tag(f->path, tag);
        bool unique = *tag && count_matches(l, BY_TAG, tag, &ignored) == 1;
        if (out->len > MOST) {
            buf_puts(out, ", ...");
            return;
        }
        buf_printf(out, "%s%s", n++ ? ", " : "", unique ? tag : f->path);
    }
}

static int centibits(const char *tag)
{
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (strcmp(without_ud(tag), mixes[i].tag) == 0)
            return mixes[i].centibits;
    return -1;
}

// The nearest to Q4_K_M among the mixes below 8 bits, of two equally near the larger; "" = none.
static void nearest_tag(const struct hub_listing *l, char out[HUB_TAG])
{
    const int wanted = centibits(preferred);
    int best = 0;
    out[0] = '\0';
    for (size_t i = 0; i < l->n; i++) {
        char tag[HUB_TAG];
        hub_tag(l->files[i].path, tag);
        int bits = is_head(&l->files[i]) ? centibits(tag) : -1;
        if (bits < 0)
            continue;
        int d = abs(bits - wanted), d_best = abs(best - wanted);
        bool nearer = d < d_best || (d == d_best && bits > best) ||
                      (bits == best && strncmp(out, "UD-", 3) == 0);
        if (!*out || nearer) {
            memcpy(out, tag, HUB_TAG);
            best = bits;
        }
    }
}

static bool parts_present(const struct hub_listing *l, const char *label, struct hub_choice *c,
                          struct error *err)
{
    size_t stem;
    unsigned no;
    const char *path = l->files[c->first].path;
    c->n = 1;
    if (!hub_split_check(path, err))
        return error_prefix(err, "%s", label);
    if (!hub_split_name(path, &stem, &no, &c->n))
        return true;
    if (c->n > HUB_MAX_PARTS)
        return error_set(err, ERR_FAIL, "%s: %s is split into %u files, expected at most %d", label,
                         path, c->n, HUB_MAX_PARTS);
    struct buf name = {0};
    bool ok = true;
    for (unsigned i = 2; ok && i <= c->n; i++) {
        buf_clear(&name);
        if (!hub_split_part(path, i, &name))
            ok = error_oom(err, "a file's name", strlen(path));
        else if (!hub_listing_find(l, name.data))
            ok = error_set(err, ERR_FAIL, "%s: part %u of %u of a split model is missing there: %s",
                           label, i, c->n, name.data);
    }
    buf_release(&name);
    return ok;
}

static bool refuse(const struct hub_listing *l, enum match how, const char *tag, const char *label,
                   const char *problem, struct error *err)
{
    struct buf names = {0};
    list_choices(l, how, tag, &names);
    if (*l->left_out)
        buf_printf(&names, "; without %s, whose name is not taken: it is hidden, long or not ASCII",
                   l->left_out);
    error_set(err, ERR_FAIL, "%s %s: name one, as in %s:%s; there are %s", label, problem, label,
              "QUANT or :FILE.gguf", buf_str(&names));
    buf_release(&names);
    return false;
}

bool hub_choose(const struct hub_listing *l, const char *label, const char *quant,
                struct hub_choice *c, struct error *err)
{
    *c = (struct hub_choice){0};
    size_t n_any = count_matches(l, ANY, "", &c->first), n = 0;
    char problem[160], nearest[HUB_TAG];
    if (n_any == 0 && *l->left_out)
        return error_set(err, ERR_FAIL,
                         "%s has the GGUF file %s, whose name is not taken: expected ASCII, fewer "
                         "than %d bytes and nothing hidden; download it otherwise, and name it "
                         "with -m",
                         label, l->left_out, HUB_MAX_PATH);
    if (n_any == 0)
        return error_set(err, ERR_FAIL,
                         "%s has no GGUF model: look for a repository with GGUF in its name",
                         label);
    enum match how = ANY;
    const char *wanted = quant;
    if (!*quant && n_any > 1) {
        wanted = preferred;
        if (count_matches(l, BY_TAG_WITHOUT_UD, preferred, &c->first) == 0) {
            nearest_tag(l, nearest);
            wanted = nearest;
        }
        if (!*wanted)
            return refuse(l, ANY, "", label, "has no model below 8 bits that hokku runs", err);
    }
    if (*wanted) {
        if (strncmp(wanted, "fp16", 5) == 0 || strncmp(wanted, "fp32", 5) == 0)
            wanted = wanted[2] == '1' ? "f16" : "f32";
        for (how = BY_NAME; n == 0 && how <= BY_TAG_WITHOUT_UD; how++)
            n = count_matches(l, how, wanted, &c->first);
        how--;
        if (n == 0) {
            snprintf(problem, sizeof problem, "has no \"%.100s\"", quant);
            return refuse(l, ANY, "", label, problem, err);
        }
        if (n > 1) {
            snprintf(problem, sizeof problem, "has %zu models that are %.100s", n, wanted);
            return refuse(l, how, wanted, label, problem, err);
        }
    }
    hub_tag(l->files[c->first].path, c->tag);
    return parts_present(l, label, c, err);
}
