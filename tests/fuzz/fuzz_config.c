// libFuzzer target: any bytes as a configuration file, and every setting read back.
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    char *args[] = {(char *)"hokku", NULL}, *text = malloc(n + 1);
    struct options o;
    struct error err = {0};
    if (text && options_parse(&o, 1, args, NULL, &err)) {
        if (n)
            memcpy(text, data, n);
        text[n] = '\0';
        options_read_config(&o, text, n, "config", &err);
        size_t n_rows;
        const struct option_def *rows = options_table(&n_rows);
        struct buf value = {0};
        for (size_t i = 0; i < n_rows; i++) {
            buf_clear(&value);
            options_get(&o, rows[i].long_name, &value);
        }
        buf_release(&value);
        options_release(&o);
    }
    free(text);
    return 0;
}
