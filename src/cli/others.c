// What is typed instead of a name of ours: options and commands of other programs, that people's
// hands know, and slips.
#include <string.h>

#include "cli/options.h"

#define LAYERS    "all layers are on the device that --device names"
#define SPLIT     "--devices 0,1 splits a model, evenly where that fits; --device cuda:N takes one GPU"
#define CHAT      "on a terminal, without a prompt, it is a chat"
#define ROPE      "positions are as the model's file says"
#define SAMPLER   "that sampler is not there, --samplers takes those that are"
#define AROUND    "the chat template says what is around a message: --chat-template-file"
#define SCHEMA    "-j @FILE reads a JSON Schema from a file"
#define HUB_TOKEN "HF_TOKEN has it, or the file that HF_TOKEN_PATH names"
#define ALIAS     "a model has its file's name"
#define SERVE     "hokku serve --listen HOST:PORT answers over HTTP"

// ours: the option of hokku, said where the tool has it. why: said elsewhere, or when there is
// none.
static const struct {
    const char *name, *ours, *why;
} options[] = {
    {"--temperature", "--temp", NULL},
    {"--max-tokens", "--n-predict", NULL},
    {"--max-new-tokens", "--n-predict", NULL},
    {"--num-predict", "--n-predict", NULL},
    {"--ctx", "--ctx-size", NULL},
    {"--context", "--ctx-size", NULL},
    {"--context-size", "--ctx-size", NULL},
    {"--num-ctx", "--ctx-size", NULL},
    {"--stop", "--reverse-prompt", NULL},
    {"--system", "--system-prompt", NULL},
    {"--json", "--output", NULL},
    {"--format", "--json-schema", NULL},
    {"-dev", "--device", NULL},
    {"--gpu", "--device", NULL},
    {"-ub", "--batch-size", NULL},
    {"--ubatch-size", "--batch-size", NULL},
    {"-tb", "--threads", NULL},
    {"--threads-batch", "--threads", NULL},
    {"-mu", "--model", NULL},
    {"--model-url", "--model", NULL},
    {"-hff", "--hf-repo", NULL},
    {"--hf-file", "--hf-repo", NULL},
    {"-co", "--color", NULL},
    {"--prompt-cache", "--session", NULL},
    {"--save", "--session", NULL},
    {"--schema", "--json-schema", NULL},
    {"--template", "--chat-template", NULL},
    {"-sp", "--special", NULL},
    {"--draft", "--spec-max", NULL},
    {"--draft-n", "--spec-max", NULL},
    {"--draft-max", "--spec-max", NULL},
    {"--context-shift", "--overflow", NULL},
    {"--no-context-shift", "--overflow", NULL},
    {"--reasoning-budget", "--think", NULL},
    {"--reasoning-format", "--think", NULL},
    {"--hidethinking", "--think", NULL},
    {"--sampling-seq", "--samplers", NULL},
    {"--sampler-seq", "--samplers", NULL},
    {"--perf", "--stats", NULL},
    {"--draft-model", "--model-draft", NULL},
    {"--keepalive", "--keep", NULL},
    {"--chat-template-kwargs", "--think", NULL},
    {"-bf", "--file", NULL},
    {"--binary-file", "--file", NULL},
    {"-V", "--version", NULL},
    {"--host", "--listen", SERVE},
    {"--port", "--listen", SERVE},
    {"--api-key", "--api-key-file", SERVE},
    {"-jf", NULL, SCHEMA},
    {"--json-schema-file", NULL, SCHEMA},
    {"--hf-token", NULL, HUB_TOKEN},
    {"-hft", NULL, HUB_TOKEN},
    {"--insecure", NULL, "certificates are always verified; SSL_CERT_FILE names others to trust"},
    {"-a", NULL, ALIAS},
    {"--alias", NULL, ALIAS},
    {"--lora", NULL, "adapters are not supported: merge it into the model's file"},
    {"--mmproj", NULL, "images are not supported"},
    {"--image", NULL, "images are not supported"},
    {"--embedding", NULL, "embeddings are not supported"},
    {"--embeddings", NULL, "embeddings are not supported"},
    {"-ngl", NULL, LAYERS},
    {"--n-gpu-layers", NULL, LAYERS},
    {"--gpu-layers", NULL, LAYERS},
    {"-sm", NULL, SPLIT},
    {"--split-mode", NULL, SPLIT},
    {"-ts", NULL, SPLIT},
    {"--tensor-split", NULL, SPLIT},
    {"-mg", NULL, SPLIT},
    {"--main-gpu", NULL, SPLIT},
    {"-fa", NULL, "attention is always computed that way"},
    {"--flash-attn", NULL, "attention is always computed that way"},
    {"-cb", NULL, "what is under way is always computed together"},
    {"--cont-batching", NULL, "what is under way is always computed together"},
    {"--mlock", NULL, "the weights stay where they are loaded"},
    {"--no-mmap", NULL, "files are mapped and copied to the device once"},
    {"--no-warmup", NULL, "there is no warm-up"},
    {"--stream", NULL, "an answer is printed as it is sampled"},
    {"-nkvo", NULL, LAYERS},
    {"--no-kv-offload", NULL, LAYERS},
    {"--numa", NULL, "numactl places a program and its memory"},
    {"--override-kv", NULL, "the model's file says what it is"},
    {"--rope-freq-base", NULL, ROPE},
    {"--rope-freq-scale", NULL, ROPE},
    {"--rope-scaling", NULL, ROPE},
    {"--rope-scale", NULL, ROPE},
    {"--mirostat", NULL, SAMPLER},
    {"--mirostat-lr", NULL, SAMPLER},
    {"--mirostat-ent", NULL, SAMPLER},
    {"--dynatemp-range", NULL, SAMPLER},
    {"--dynatemp-exp", NULL, SAMPLER},
    {"-i", NULL, CHAT},
    {"--interactive", NULL, CHAT},
    {"-if", NULL, CHAT},
    {"--interactive-first", NULL, CHAT},
    {"--jinja", NULL, "chat templates are always read as Jinja"},
    {"--in-prefix", NULL, AROUND},
    {"--in-suffix", NULL, AROUND},
    {"-e", NULL, "texts are taken as they are: a shell's $'a\\nb' has a line break"},
    {"--escape", NULL, "texts are taken as they are: a shell's $'a\\nb' has a line break"},
    {"--no-escape", NULL, "texts are always taken as they are"},
    {"--no-display-prompt", NULL, "the prompt is never printed"},
    {"--verbose-prompt", NULL, "hokku render prints a prompt as the model gets it"},
    {"--log-disable", NULL, "there is no log, only what -v says"},
    {"--simple-io", NULL, "TERM=dumb, or none at all, prints no escape sequences"},
    {"--nowordwrap", NULL, "the terminal alone breaks lines"},
    {"-mli", NULL, "paste lines, or put \"\"\" before and after"},
    {"--multiline-input", NULL, "paste lines, or put \"\"\" before and after"},
};

static const struct {
    const char *name, *ours;
} commands[] = {
    {"run", "hokku -m FILE, or hokku -hf USER/REPO, is a chat"},
    {"chat", "hokku -m FILE, or hokku -hf USER/REPO, is a chat"},
    {"list", "hokku models lists them"},
    {"ls", "hokku models lists them"},
    {"show", "hokku inspect FILE says what is in a model"},
    {"rm", "hokku models rm NAME removes one"},
    {"download", "hokku pull USER/REPO does that"},
    {"ps", "hokku models lists what is kept in memory, too"},
    {"stop", "hokku serve --stop lets go of models that are kept in memory"},
    {"detokenize", "hokku serve does it, at POST /detokenize"},
    {"completion", "hokku --print-completion bash, or zsh, prints it"},
    {"version", "hokku --version prints it"},
    {"help", "hokku --help has the options, hokku TOOL --help a tool's"},
};

// In the chat; a setting of another chat is "set NAME".
static const struct {
    const char *name, *ours;
} in_chat[] = {
    {"/regen", "/retry"},
    {"/regenerate", "/retry"},
    {"/reset", "/clear"},
    {"/new", "/clear"},
    {"/list", "/sessions"},
    {"/ls", "/sessions"},
    {"/rm", "/delete"},
    {"/cp", "/fork"},
    {"/mv", "/rename"},
    {"/info", "/show"},
    {"/history", "/context"},
    {"/tokens", "/context"},
    {"/file", "/read"},
    {"/open", "/read"},
    {"/attach", "/read"},
    {"/q", "/quit"},
    {"/resume", "/load"},
    {"/temp", "/set temp"},
    {"/seed", "/set seed"},
    {"/settings", "/set"},
    {"set n", "n-predict"},
    {"set model", "/model FILE"},
    {"set prefill", "/prefill TEXT"},
    {"set system-prompt", "/system TEXT"},
    {"set parameter", "/set NAME VALUE"},
    {"set system", "/system TEXT"},
    {"set format", "/set schema @FILE"},
    {"set verbose", "/stats"},
    {"set nothink", "/set think off"},
};

static size_t find(const char *name)
{
    size_t i = 0;
    while (i < sizeof options / sizeof *options && strcmp(options[i].name, name) != 0)
        i++;
    return i;
}

const char *option_synonym(const char *name)
{
    size_t i = find(name);
    return i < sizeof options / sizeof *options ? options[i].ours : NULL;
}

const char *option_not_there(const char *name)
{
    size_t i = find(name);
    return i < sizeof options / sizeof *options ? options[i].why : NULL;
}

const char *tool_synonym(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].ours;
    return NULL;
}

const char *chat_synonym(const char *name)
{
    for (size_t i = 0; i < sizeof in_chat / sizeof *in_chat; i++)
        if (strcmp(in_chat[i].name, name) == 0)
            return in_chat[i].ours;
    return NULL;
}

unsigned edit_distance(const char *a, const char *b)
{
    enum { MAX = 63 };
    const size_t na = strnlen(a, MAX), nb = strnlen(b, MAX);
    unsigned rows[3][MAX + 1]; // of a's characters before the last, before this one, and with it
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        const unsigned *before = rows[(i + 1) % 3], *above = rows[(i - 1) % 3];
        unsigned *row = rows[i % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[na % 3][nb];
}
