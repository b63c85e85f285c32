// libFuzzer target: what a Hub may answer. An input is a line (the name asked for, also taken as a
// Link header and a checksum), then the JSON of a repository's list of files.
#include <stdlib.h>
#include <string.h>

#include "hub/listing.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        abort();
}

// What is promised about a choice.
static void check_choice(const struct hub_listing *l, const struct hub_choice *c)
{
    struct buf part = {0};
    size_t stem;
    unsigned no = 1, count = 1;
    require(c->first < l->n && c->n >= 1 && c->n <= HUB_MAX_PARTS);
    require(hub_split_check(l->files[c->first].path, NULL));
    hub_split_name(l->files[c->first].path, &stem, &no, &count);
    require(no == 1 && count == c->n);
    for (unsigned i = 1; i <= c->n; i++) {
        buf_clear(&part);
        require(hub_split_part(l->files[c->first].path, i, &part));
        require(hub_path_ok(part.data) && hub_listing_find(l, part.data));
    }
    buf_release(&part);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    const unsigned char *nl = n ? memchr(data, '\n', n) : NULL;
    size_t n_line = nl ? (size_t)(nl - data) : n;
    char *line = malloc(n_line + 1), sha[SHA256_HEX];
    if (!line)
        return 0;
    if (n_line)
        memcpy(line, data, n_line);
    line[n_line] = '\0';
    struct error err = {0};
    struct hub_spec spec = {0};
    struct buf url = {0};
    if (hub_spec_parse(line, &spec, &err)) {
        require(!strstr(spec.label, "..") || spec.label[0] != '.');
        require(strchr(spec.label, '/') == strrchr(spec.label, '/'));
    }
    require(hub_sha256_text(line, sha) ? strlen(sha) == SHA256_HEX - 1 : sha[0] == '\0');
    hub_link_next(line, &url);
    buf_release(&url);
    struct hub_listing l = {0};
    if (nl && hub_listing_parse(&l, (const char *)nl + 1, n - n_line - 1, &err)) {
        struct hub_choice c;
        char tag[HUB_TAG];
        for (size_t i = 0; i < l.n; i++) {
            require(hub_path_ok(l.files[i].path));
            hub_tag(l.files[i].path, tag);
        }
        if (hub_choose(&l, "u/r", spec.quant, &c, &err))
            check_choice(&l, &c);
        if (hub_choose(&l, "u/r", "", &c, &err))
            check_choice(&l, &c);
    }
    hub_listing_release(&l);
    free(line);
    return 0;
}
