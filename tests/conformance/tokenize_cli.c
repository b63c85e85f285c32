// For test_tokenizer.py: tokenize_cli FILE.gguf < NUL-terminated strings > one JSON array of ids
// per string. Special tokens in the text are not parsed.
#include <stdio.h>

#include "gguf/gguf.h"
#include "tools/tokenize.h"

int main(int argc, char **argv)
{
    struct error err = {0};
    struct buf in = {0}, out = {0};
    struct tokenize_options opt = {0};
    char chunk[65536];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0)
        buf_append(&in, chunk, n);
    struct gguf *g = argc == 2 ? gguf_open(argv[1], &err) : NULL;
    struct tokenizer *t = g ? tokenizer_create(g, &err) : NULL;
    bool ok = t && !in.failed && tool_tokenize(t, buf_str(&in), in.len, &opt, true, &out, &err);
    if (!ok)
        fprintf(stderr, "tokenize_cli: %s\n", err.text);
    else
        fwrite(buf_str(&out), 1, out.len, stdout);
    tokenizer_free(t);
    gguf_free(g);
    buf_release(&in);
    buf_release(&out);
    return !ok;
}
