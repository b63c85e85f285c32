// One row per option: names, target, help. Order and groups are those of the help.
#include <stddef.h>

#include "cli/options.h"

#define MAIN       (1u << TOOL_NONE)
#define INSPECT    (1u << TOOL_INSPECT)
#define TOKENIZE   (1u << TOOL_TOKENIZE)
#define RENDER     (1u << TOOL_RENDER)
#define SCORE      (1u << TOOL_SCORE)
#define PERPLEXITY (1u << TOOL_PERPLEXITY)
#define BENCH      (1u << TOOL_BENCH)
#define REPLAY     (1u << TOOL_REPLAY)
#define PULL       (1u << TOOL_PULL)
#define MODELS     (1u << TOOL_MODELS)
#define SESSIONS   (1u << TOOL_SESSIONS)
#define SERVE      (1u << TOOL_SERVE)
#define ENGINE     (MAIN | SERVE | SCORE | PERPLEXITY | BENCH | REPLAY)

#define AT(field)    offsetof(struct options, field)
#define GIVEN(field) offsetof(struct options, field)
// Its range: engine/settings.h.
#define SAMPLE(field, long_name, kind, arg, help)                                                  \
    {                                                                                              \
        MAIN | SERVE, "sampling", NULL, long_name, arg, kind, AT(sampler.field), 0, NULL, NULL, true, help \
    }

static const struct option_def table[] = {
    {ENGINE | TOKENIZE | RENDER | INSPECT, "model", "-m", "--model", "FILE", OPT_STR, AT(model), 0,
     NULL, NULL, false, "GGUF file or https URL ($HOKKU_MODEL, or built-in)"},
    {MAIN | SERVE | SCORE | PERPLEXITY | BENCH, "model", "-hf", "--hf-repo", "USER/REPO[:QUANT]", OPT_STR,
     AT(hf_repo), 0, NULL, NULL, false, "from the Hugging Face Hub, downloaded once"},
    {ENGINE, "model", NULL, "--device", "D", OPT_STR, AT(device), 0, NULL, NULL, false,
     "auto, cuda, cuda:N or cpu (auto)"},
    {ENGINE, "model", "-t", "--threads", "N", OPT_I32, AT(n_threads), 0, NULL, NULL, false,
     "CPU threads (all processors)", 0, 1024},
    {ENGINE, "model", "-c", "--ctx-size", "N", OPT_U32, AT(n_ctx), 0, NULL, NULL, false,
     "context in tokens (0: the model's, or what fits)"},
    {ENGINE, "model", "-ctk", "--cache-type-k", "TYPE", OPT_CUSTOM, 0, 0, "f16|q8_0",
     options_parse_kv_k, false, "KV cache of keys: f16 or q8_0 (f16)"},
    {ENGINE, "model", "-ctv", "--cache-type-v", "TYPE", OPT_CUSTOM, 0, 0, "f16|q8_0",
     options_parse_kv_v, false, "KV cache of values: f16 or q8_0 (f16)"},
    {ENGINE, "model", "-b", "--batch-size", "N", OPT_U32, AT(n_batch), 0, NULL, NULL, false,
     "prompt tokens evaluated together (512)", 1, INT32_MAX},
    {MAIN, "model", NULL, "--keep", "TIME", OPT_CUSTOM, 0, 0, NULL, options_parse_keep, false,
     "the model stays in memory for the next call, as 10m (0)"},
    {MAIN, "model", NULL, "--dry-run", NULL, OPT_FLAG, AT(dry_run), 0, NULL, NULL, false,
     "print the memory plan and what would fit (with --json: as JSON), exit"},
    {ENGINE | PULL, "model", NULL, "--offline", NULL, OPT_FLAG, AT(offline), 0, NULL, NULL, false,
     "use only what is already downloaded"},
    {ENGINE | PULL, "model", NULL, "--max-size", "SIZE", OPT_CUSTOM, 0, 0, NULL,
     options_parse_max_size, false, "no larger download, as 500M or 20G (what fits)"},
    {ENGINE | PULL, "model", NULL, "--allow-http", NULL, OPT_FLAG, AT(allow_http), 0, NULL, NULL,
     false, "HF_TOKEN in clear to an http:// HF_ENDPOINT"},

    {MAIN, "prompt", "-p", "--prompt", "TEXT", OPT_STR, AT(prompt), 0, NULL, NULL, false,
     "the prompt, or just write it as an argument"},
    {MAIN, "prompt", "-f", "--file", "FILE", OPT_STR, AT(file), 0, NULL, NULL, false,
     "prompt from FILE (after PROMPT, before a pipe)"},
    {MAIN, "prompt", "-sys", "--system-prompt", "TEXT|@NAME", OPT_STR, AT(system), 0, NULL, NULL,
     false, "system prompt; @haiku, @coder ..."},
    {MAIN, "prompt", "-sysf", "--system-prompt-file", "FILE", OPT_STR, AT(system_file), 0, NULL,
     NULL, false, "system prompt from FILE"},
    {MAIN, "prompt", "-cnv", "--conversation", NULL, OPT_FLAG, AT(conversation), 0, NULL, NULL,
     false, "use the chat template (if the model has one)"},
    {MAIN, "prompt", "-no-cnv", "--no-conversation", NULL, OPT_FLAG_OFF, AT(conversation), 0, NULL,
     NULL, false, "plain completion: no template"},
    {MAIN, "prompt", "-st", "--single-turn", NULL, OPT_FLAG, AT(single_turn), 0, NULL, NULL, false,
     "leave after one answer"},
    {MAIN, "prompt", NULL, "--special", NULL, OPT_FLAG, AT(special), 0, NULL, NULL, false,
     "with -no-cnv: <|im_end|> is the control token"},
    {MAIN | SERVE | RENDER, "prompt", NULL, "--chat-template", "NAME", OPT_STR, AT(chat_template), 0, NULL,
     NULL, false, "a shipped template, or the model's by name"},
    {MAIN | SERVE | RENDER, "prompt", NULL, "--chat-template-file", "FILE", OPT_STR, AT(chat_template_file),
     0, NULL, NULL, false, "a Jinja chat template"},
    {MAIN, "prompt", NULL, "--prefill", "TEXT", OPT_STR, AT(prefill), 0, NULL, NULL, false,
     "start of the answer"},
    {MAIN | SERVE, "prompt", NULL, "--think", "on|off|hide", OPT_CHOICE, AT(think), 0,
     "default|on|off|hide", NULL, true, "a model's thinking: on, off, or not shown"},

    {MAIN, "many prompts", NULL, "--lines", NULL, OPT_FLAG, AT(lines), 0, NULL, NULL, false,
     "each line of stdin is its own prompt"},
    {MAIN | SERVE, "many prompts", "-np", "--parallel", "N", OPT_U32, AT(n_parallel), 0, NULL, NULL, false,
     "answers under way together, which changes none (0: what fits)", 0, ENGINE_MAX_PARTS},
    {MAIN, "many prompts", NULL, "--unordered", NULL, OPT_FLAG, AT(unordered), 0, NULL, NULL, false,
     "print answers of --lines when they are done"},
    {MAIN, "many prompts", NULL, "--shard", "I/N", OPT_CUSTOM, 0, 0, NULL, options_parse_shard,
     false, "only lines that are I modulo N; auto: as Slurm says"},
    {MAIN, "many prompts", "-0", "--null", NULL, OPT_FLAG, AT(null), 0, NULL, NULL, false,
     "a NUL byte after each answer of --lines or --turns"},
    {MAIN, "many prompts", NULL, "--turns", NULL, OPT_FLAG, AT(turns), 0, NULL, NULL, false,
     "each line of stdin is the next turn of one chat"},

    {MAIN | SERVE, "length", "-n", "--n-predict", "N", OPT_I64, AT(n_predict), 0, NULL, NULL, true,
     "most tokens of an answer (-1: no limit)", -1, (double)INT64_MAX},
    {MAIN, "length", "-r", "--reverse-prompt", "TEXT", OPT_LIST, AT(stop), 0, NULL, NULL, false,
     "stop text, repeatable"},
    {MAIN, "length", NULL, "--ignore-eos", NULL, OPT_FLAG, AT(ignore_eos), 0, NULL, NULL, true,
     "go on after the model's end token"},
    {MAIN, "length", NULL, "--overflow", "error|drop|shift", OPT_CHOICE, AT(overflow), 0,
     "error|drop|shift", NULL, true, "when the context is full (error)"},

    {MAIN | SERVE, "speed", NULL, "--spec", "auto|off|ngram|draft|mtp", OPT_CHOICE, AT(spec), 0,
     "auto|off|ngram|draft|mtp", NULL, true,
     "guess tokens and check several at once, which changes no text (auto)"},
    {MAIN | SERVE, "speed", "-md", "--model-draft", "FILE", OPT_STR, AT(model_draft), 0, NULL, NULL, false,
     "a small model with the same vocabulary, to guess them"},
    {MAIN | SERVE | BENCH | REPLAY, "speed", NULL, "--exact", NULL, OPT_FLAG, AT(exact), 0, NULL, NULL, false,
     "on a GPU: the same text in any chunks and company, slower"},

    {MAIN, "shape", "-j", "--json-schema", "TEXT|@FILE", OPT_STR, AT(json_schema), 0, NULL, NULL,
     false, "the answer is JSON that obeys this schema"},
    {MAIN, "shape", NULL, "--grammar", "TEXT", OPT_STR, AT(grammar), 0, NULL, NULL, false,
     "the answer obeys this grammar (GBNF)"},
    {MAIN, "shape", NULL, "--grammar-file", "FILE", OPT_STR, AT(grammar_file), 0, NULL, NULL, false,
     "the same, from a file"},
    {MAIN, "shape", NULL, "--json-indent", "N", OPT_U32, AT(json_indent), 0, NULL, NULL, false,
     "spaces of a level in the answer's JSON (0: one line)", 0, GRAMMAR_MAX_INDENT},
    {MAIN, "shape", NULL, "--json-close", NULL, OPT_FLAG, AT(json_close), 0, NULL, NULL, false,
     "at -n, end early enough to obey"},

    {MAIN | SERVE, "sampling", "-s", "--seed", "N", OPT_U64, AT(sampler.seed), GIVEN(seed_given), NULL,
     NULL, true, "random seed (random, printed with -v)"},
    SAMPLE(temp, "--temp", OPT_F32, "X", "temperature, 0 = most likely token (0.8)"),
    SAMPLE(top_k, "--top-k", OPT_I32, "N", "the N most likely tokens, 0 = all (40)"),
    SAMPLE(top_p, "--top-p", OPT_F32, "X", "nucleus probability, 1 = off (0.95)"),
    SAMPLE(min_p, "--min-p", OPT_F32, "X", "least probability relative to the best (0.05)"),
    SAMPLE(typical, "--typical", OPT_F32, "X", "locally typical sampling, 1 = off (1)"),
    SAMPLE(top_n_sigma, "--top-nsigma", OPT_F32, "X",
           "within X deviations of the best, -1 = off (-1)"),
    SAMPLE(xtc_probability, "--xtc-probability", OPT_F32, "X",
           "exclude top choices this often (0)"),
    SAMPLE(xtc_threshold, "--xtc-threshold", OPT_F32, "X", "those above this probability (0.1)"),
    SAMPLE(repeat_penalty, "--repeat-penalty", OPT_F32, "X",
           "divide logits of recent tokens, 1 = off (1)"),
    SAMPLE(repeat_last_n, "--repeat-last-n", OPT_I32, "N", "how many are recent, -1 = all (64)"),
    SAMPLE(presence_penalty, "--presence-penalty", OPT_F32, "X",
           "subtract once per recent token (0)"),
    SAMPLE(frequency_penalty, "--frequency-penalty", OPT_F32, "X", "subtract per occurrence (0)"),
    SAMPLE(dry_multiplier, "--dry-multiplier", OPT_F32, "X", "DRY repetition penalty, 0 = off (0)"),
    SAMPLE(dry_base, "--dry-base", OPT_F32, "X", "its base (1.75)"),
    SAMPLE(dry_allowed_length, "--dry-allowed-length", OPT_I32, "N",
           "repeats up to N are free (2)"),
    SAMPLE(dry_penalty_last_n, "--dry-penalty-last-n", OPT_I32, "N", "its window, -1 = all (-1)"),
    {MAIN | SERVE, "sampling", "-l", "--logit-bias", "ID(+|-)N", OPT_CUSTOM, 0, 0, NULL, options_parse_bias,
     true, "add N to a token's logit, repeatable"},
    {MAIN | SERVE, "sampling", NULL, "--samplers", "LIST", OPT_CUSTOM, 0, 0, NULL, options_parse_chain,
     true, "filters in order, ';' between"},

    {MAIN, "sessions", NULL, "--session", "NAME", OPT_STR, AT(session), 0, NULL, NULL, false,
     "resume or begin a session, saved every turn"},
    {MAIN, "sessions", NULL, "--continue", NULL, OPT_FLAG, AT(resume), 0, NULL, NULL, false,
     "go on with the last chat, named or not"},
    {MAIN, "sessions", NULL, "--base", "NAME|FILE", OPT_STR, AT(base), 0, NULL, NULL, false,
     "begin with a saved session, which stays as it is"},
    {MAIN, "sessions", NULL, "--no-kv", NULL, OPT_FLAG, AT(no_kv), 0, NULL, NULL, false,
     "save the text alone: small, and read again when resumed"},
    {MAIN, "sessions", NULL, "--no-history", NULL, OPT_FLAG, AT(no_history), 0, NULL, NULL, false,
     "keep neither the lines typed nor chats without a name"},

    {TOKENIZE, "options", NULL, "--special", NULL, OPT_FLAG, AT(special), 0, NULL, NULL, false,
     "text like <|im_end|> becomes the control token"},
    {TOKENIZE, "options", NULL, "--bos", NULL, OPT_FLAG, AT(add_bos), 0, NULL, NULL, false,
     "begin with BOS if the model's metadata asks for it"},
    {TOKENIZE, "options", NULL, "--nul", NULL, OPT_FLAG, AT(nul), 0, NULL, NULL, false,
     "inputs are NUL-terminated strings, one array per line"},
    {SCORE, "options", NULL, "--top", "K", OPT_U32, AT(top), 0, NULL, NULL, false,
     "alternatives per position (default 10)", 0, ENGINE_MAX_PROBS},
    {PERPLEXITY, "options", "-f", "--file", "FILE", OPT_STR, AT(file), 0, NULL, NULL, false,
     "the text to score"},
    {BENCH, "options", "-p", "--n-prompt", "N", OPT_U32, AT(bench_prompt), 0, NULL, NULL, false,
     "prompt tokens to prefill (default 512, 0 = none)"},
    {BENCH, "options", "-n", "--n-gen", "N", OPT_U32, AT(bench_gen), 0, NULL, NULL, false,
     "tokens to decode (default 128, 0 = none)"},
    {BENCH, "options", "-d", "--n-depth", "DEPTH", OPT_LIST, AT(bench_depth), 0, NULL, NULL, false,
     "tokens already in the context, may be repeated (default 0)"},
    {BENCH, "options", NULL, "--batch", "N", OPT_LIST, AT(bench_batch), 0, NULL, NULL, false,
     "also decode N sequences together, may be repeated"},
    {BENCH, "options", "-r", "--repetitions", "N", OPT_U32, AT(bench_repeat), 0, NULL, NULL, false,
     "runs of each, the median is shown (default 5)"},
    {BENCH, "options", "-o", "--output", "md|json", OPT_STR, AT(output), 0, "md|json", NULL, false,
     "a table or JSON (default md)"},
    {BENCH, "options", NULL, "--plan", NULL, OPT_FLAG, AT(plan), 0, NULL, NULL, false,
     "print the bytes that a decoded token moves and must move, run nothing"},
    {BENCH, "options", NULL, "--kernels", NULL, OPT_FLAG, AT(bench_kernels), 0, NULL, NULL, false,
     "also time every kernel of a token and of a chunk of the prompt"},
    {BENCH, "options", NULL, "--grammar", "FILE", OPT_STR, AT(grammar_file), 0, NULL, NULL, false,
     "time the masks of a grammar, or of a JSON Schema (FILE.json), run nothing"},

    {SERVE, "serve", NULL, "--listen", "HOST:PORT|unix:PATH", OPT_STR, AT(listen), 0, NULL, NULL,
     false, "where (127.0.0.1:8080); port 0: one that is free"},
    {SERVE, "serve", NULL, "--api-key-file", "FILE", OPT_STR, AT(api_key_file), 0, NULL, NULL,
     false, "keys, one on a line, of which clients need one"},
    {SERVE, "serve", NULL, "--queue", "N", OPT_U32, AT(queue), 0, NULL, NULL, false,
     "requests that may wait beside those answered (64)", 0, 65536},
    {SERVE, "serve", NULL, "--timeout", "S", OPT_F32, AT(timeout), 0, NULL, NULL, false,
     "seconds for a request to come, for a client to read on (30)", 1, 86400},
    {SERVE, "serve", NULL, "--grace", "S", OPT_F32, AT(grace), 0, NULL, NULL, false,
     "seconds that answers have when the server is to end (10)", 0, 86400},
    {SERVE, "serve", NULL, "--stop", NULL, OPT_FLAG, AT(stop_keepers), 0, NULL, NULL, false,
     "serve nothing: let go of the models that --keep keeps"},

    {MAIN | SERVE | PULL | REPLAY, "output", "-q", "--quiet", NULL, OPT_FLAG, AT(quiet), 0, NULL, NULL,
     false, "nothing but the answer and errors"},
    {MAIN | ENGINE | PULL, "output", "-v", "--verbose", NULL, OPT_FLAG, AT(verbose), 0, NULL, NULL,
     false, "say what is done: device, memory, seed"},
    {INSPECT, "output", "-v", "--verbose", NULL, OPT_FLAG, AT(verbose), 0, NULL, NULL, false,
     "list every tensor"},
    {MAIN, "output", NULL, "--stats", NULL, OPT_FLAG, AT(stats), 0, NULL, NULL, false,
     "speed, tokens, context after each answer"},
    {MAIN, "output", NULL, "--json", NULL, OPT_FLAG, AT(json), 0, NULL, NULL, false,
     "JSON: text, token ids, finish_reason, timings"},
    {INSPECT, "output", NULL, "--json", NULL, OPT_FLAG, AT(json), 0, NULL, NULL, false,
     "metadata, tensors and totals as JSON"},
    {MODELS, "output", NULL, "--json", NULL, OPT_FLAG, AT(json), 0, NULL, NULL, false,
     "the list as JSON: name, path, bytes, last use"},
    {SESSIONS, "output", NULL, "--json", NULL, OPT_FLAG, AT(json), 0, NULL, NULL, false,
     "the list as JSON: name, turns, tokens, bytes, model"},
    {REPLAY, "output", NULL, "--json", NULL, OPT_FLAG, AT(json), 0, NULL, NULL, false,
     "what was compared, and the first difference, as JSON"},
    {PERPLEXITY, "output", NULL, "--json", NULL, OPT_FLAG, AT(json), 0, NULL, NULL, false,
     "perplexity, its error, windows and tokens as JSON"},
    {REPLAY, "output", NULL, "--check", NULL, OPT_FLAG, AT(check), 0, NULL, NULL, false,
     "also with prompts in other pieces, and with drafts"},
    {MAIN, "output", NULL, "--logprobs", "N", OPT_U32, AT(logprobs), 0, NULL, NULL, true,
     "N alternatives for each token", 0, ENGINE_MAX_PROBS},
    {MAIN, "output", NULL, "--color", "WHEN", OPT_CHOICE, AT(color), 0, "auto|always|never", NULL,
     true, "auto, always or never"},

    {~0u, "help", "-h", "--help", NULL, OPT_FLAG, AT(help), 0, NULL, NULL, false, "this text"},
    {MAIN, "help", NULL, "--version", NULL, OPT_FLAG, AT(version), 0, NULL, NULL, false,
     "version and build"},
    {MAIN, NULL, NULL, "--print-completion", "KIND", OPT_STR, AT(print_completion), 0,
     "bash|zsh|man", NULL, false, "shell completion (bash, zsh) or the man page (man)"},
};

_Static_assert(sizeof table / sizeof *table <= OPTIONS_MAX_ROWS, "options.given is too short");

const struct option_def *options_table(size_t *n)
{
    *n = sizeof table / sizeof *table;
    return table;
}
