// The command line: one table of options serves parsing, the configuration file, the environment,
// help, the man page and shell completion.
#ifndef HOKKU_CLI_OPTIONS_H
#define HOKKU_CLI_OPTIONS_H

#include "base/buf.h"
#include "base/error.h"
#include "engine/engine.h"
#include "engine/session.h"

enum tool {
    TOOL_NONE = 0, // the three ways in
    TOOL_INSPECT,
    TOOL_TOKENIZE,
    TOOL_RENDER,
    TOOL_SCORE,
    TOOL_PERPLEXITY,
    TOOL_BENCH,
    TOOL_REPLAY,
    TOOL_PULL,
    TOOL_MODELS,
    TOOL_SESSIONS,
    TOOL_SERVE,
    N_TOOLS,
};

enum when { WHEN_AUTO, WHEN_ALWAYS, WHEN_NEVER };

enum { OPTIONS_MAX_LIST = 64, OPTIONS_MAX_ROWS = 128 };

struct str_list {
    const char *items[OPTIONS_MAX_LIST];
    size_t n;
};

// The variables that Hugging Face's own programs know, and the one of OpenSSL; NULL: not set.
struct hub_environment {
    const char *endpoint;   // HF_ENDPOINT
    const char *token;      // HF_TOKEN
    const char *token_path; // HF_TOKEN_PATH
    const char *cache;      // HF_HUB_CACHE
    const char *timeout;    // HF_HUB_DOWNLOAD_TIMEOUT, seconds
    const char *ca_file;    // SSL_CERT_FILE
    char *home;             // HF_HOME or its default; owned; NULL: no home
};

struct options {
    enum tool tool;
    bool help, version;
    const char *print_completion; // "bash", "zsh", "fish", "man"
    char **complete;              // the words after --complete (complete.h); NULL: not given
    size_t n_complete;

    // model
    const char *model, *hf_repo, *device;
    const char *devices; // NULL: --device
    int32_t n_threads;
    uint32_t n_ctx, n_batch;
    enum kv_type type_k, type_v;
    bool dry_run, offline, allow_http;
    uint32_t keep;      // seconds that the model stays in memory for the next call; 0: not
    uint64_t max_bytes; // of a download; 0: what the disk has room for

    // prompt
    const char *prompt, *file, *system, *system_file;
    int32_t conversation; // -1 = on if the model has a chat template
    const char *frame;    // each prompt is put into it: of -sys @NAME, or a session's; NULL: none
    bool single_turn, special;
    const char *chat_template, *chat_template_file, *prefill;
    int32_t think; // enum think of dialog/think.h

    bool lines, turns, null, unordered;
    uint32_t n_parallel;      // 0: what fits
    uint32_t shard, n_shards; // lines of which the number is shard modulo n_shards; 0: all

    // length
    int64_t n_predict;
    struct str_list stop;
    bool ignore_eos;
    enum overflow overflow;
    enum spec spec;
    uint32_t spec_max;
    bool exact;
    bool check; // replay
    const char *model_draft;

    // the answer's shape: at most one of the first three
    const char *json_schema, *grammar, *grammar_file;
    uint32_t json_indent;
    bool json_close;

    // sampling, and which of it came from the user, so that a model's recommendation does not
    // override it (see engine/settings.h)
    struct sampler_settings sampler;
    uint32_t sampler_given;
    bool seed_given;

    const char *session, *base;
    bool resume; // --continue
    bool no_history, no_kv;

    // output
    bool quiet, verbose, stats, json;
    uint32_t logprobs;
    enum when color;
    const char *home, *editor, *temp_dir; // HOME (may be NULL), VISUAL or EDITOR, TMPDIR
    bool dumb, no_color;                  // TERM=dumb, or none: no escape sequences; NO_COLOR

    // tools
    bool add_bos, nul, plan, bench_kernels;
    uint32_t top; // score --top
    uint32_t bench_prompt, bench_gen, bench_repeat;
    struct str_list bench_depth, bench_batch;
    const char *output;   // bench -o md|json
    struct str_list args; // positional arguments (main: at most one, the prompt)

    // serve
    const char *listen, *api_key_file;
    uint32_t queue;       // requests that may wait
    float grace, timeout; // seconds
    int inherited_socket; // that systemd has opened for this process; -1: none
    bool stop_keepers;    // only let go of kept models

    bool given[OPTIONS_MAX_ROWS]; // the command line named this row of the table
    struct option_origin {
        const char *variable;   // "HOKKU_TOP_K=20"
        int line;               // of the configuration file; 0: not there
    } origin[OPTIONS_MAX_ROWS]; // of a row's value that is not from the command line

    // places; NULL where there is none
    char *cache_dir, *state_dir, *config_file; // owned
    const char *runtime_dir;                   // XDG_RUNTIME_DIR
    bool homeless;                             // no $HOME, and the system knows no home of the user
    struct hub_environment hub;
    struct buf config;    // the configuration file; options point into it
    struct buf notice;    // variables that are hardly meant as they are, in a line; empty: none
    struct own_text *own; // what options_own has; owned, the same for all copies
};

// Reads the configuration file, the environment and argv, later ones winning. Strings point into
// argv, environ, or memory owned by *o. Errors: ERR_USAGE (the option, the value found, what was
// expected, the nearest name), ERR_MEMORY.
bool options_parse(struct options *o, int argc, char **argv, char **envp, struct error *err);
// Whether the command line, and not a file or the environment, has the tool's option of this long
// name.
bool options_named(const struct options *o, const char *long_name);
void options_release(struct options *o);
// This text for a setting to point to, until options_release. NULL: no memory.
const char *options_own(struct options *o, const char *text);

const char *tool_name(enum tool t);
enum tool tool_named(const char *name); // TOOL_NONE: none is
const char *tool_usage(enum tool t);    // "[options] FILE"
const char *tool_what(enum tool t);     // what it is for

// Reads the text of a configuration file, which is changed and must live as long as *o. label: its
// name in messages.
bool options_read_config(struct options *o, char *text, size_t n, const char *label,
                         struct error *err);

// The help text of a tool (TOOL_NONE: the program's), wrapped for 80 columns.
bool options_help(enum tool t, struct buf *out);
// Appends text, which begins in a column, wrapped at words, with later lines indented.
void help_wrapped(struct buf *out, size_t column, size_t indent, size_t columns, const char *text);

// Sets one option by its long name, as the configuration file and the REPL's /set do.
bool options_set(struct options *o, const char *name, const char *value, struct error *err);
// The current value of a setting as text; false when there is no such option.
bool options_get(const struct options *o, const char *name, struct buf *out);

// The table, for generators of completion and man page and for the REPL's /set.
enum option_kind {
    OPT_FLAG,     // no value: true
    OPT_FLAG_OFF, // no value: false
    OPT_STR,
    OPT_LIST, // repeatable string
    OPT_I32,
    OPT_I64,
    OPT_U32,
    OPT_U64, // the seed
    OPT_F32,
    OPT_CHOICE, // one of `choices`, stored as an int32 in their order
    OPT_CUSTOM, // parsed by a function
};

struct option_def {
    uint32_t tools;         // bit (1 << enum tool) for each tool that has it
    const char *group;      // heading in the help
    const char *short_name; // "-m", "-hf" or NULL
    const char *long_name;  // "--model"
    const char *arg;        // "FILE"; NULL for flags
    enum option_kind kind;
    size_t offset;       // of the target in struct options
    const char *choices; // OPT_CHOICE: "auto|always|never"
    bool (*parse)(struct options *o, const char *value, struct error *err);
    bool in_chat; // /set may change it during a conversation
    const char *help;
    double least, most; // what a number may be; both 0: anything of its kind, or what the table of
                        // sampling settings says (engine/settings.h)
};

const struct option_def *options_table(size_t *n);
bool option_has_tool(const struct option_def *d, enum tool t);
// The tool's row of that name, short or long; NULL: it has none.
const struct option_def *option_find(enum tool t, const char *name, size_t len);
size_t option_row(const struct option_def *d); // its number in the table
// Reads value into the row's target. NULL: a flag that is named. Errors: ERR_USAGE (the option, the
// value found, what was expected).
bool option_store(struct options *o, const struct option_def *d, const char *value,
                  struct error *err);
// The ~ that a value's path, if the row takes one, begins with, alone or before a slash; NULL.
const char *option_tilde(const struct option_def *d, const char *value);
// Of an option that may be given more than once, forgets what was given: a source that goes before
// others (options.c) has its own values alone.
void option_forget(struct options *o, const struct option_def *d);
// The row's value as text, for people. false: no memory.
bool option_show(const struct options *o, const struct option_def *d, struct buf *out);

// Parsers of OPT_CUSTOM rows.
bool options_parse_bias(struct options *o, const char *value, struct error *err);
bool options_parse_chain(struct options *o, const char *value, struct error *err);
bool options_parse_shard(struct options *o, const char *value, struct error *err);
bool options_parse_max_size(struct options *o, const char *value, struct error *err);
bool options_parse_keep(struct options *o, const char *value, struct error *err);

// Whether what --spec asks for is there. Errors: ERR_USAGE.
bool options_check_draft(const struct options *o, struct error *err);
// An error about a value that is not from the command line, found when the value was used, says
// where it is from, as one that was found when it was read does.
void options_say_origin(const struct options *o, struct error *err);
// Of options that exclude each other those of the command line stay. Errors: ERR_USAGE.
bool options_exclude(struct options *o, struct error *err);
// One that was set since: where the command line has one that excludes it, it is off.
void options_yield(struct options *o, const struct option_def *d);

// What hokku calls an option of other programs: "--temp" for "--temperature"; NULL: nothing else.
const char *option_synonym(const char *name);
// Why hokku has none of that name; NULL: nothing is known of it, or the other name says it all.
const char *option_not_there(const char *name);
// What does what a command of other programs does: "hokku models lists them" for "list"; NULL.
const char *tool_synonym(const char *name);
// The command of the chat for one of other chats: "/retry" for "/regen", "/system TEXT" for
// "set system"; NULL.
const char *chat_synonym(const char *name);
// Edit distance, where two neighbours that changed places are one edit, for "did you mean".
unsigned edit_distance(const char *a, const char *b);

#endif
