#include "cli/manual.h"

#include <ctype.h>
#include <string.h>

#include "cli/complete.h"
#include "cli/options.h"

// ---------------------------------------------------------------------------------------------
// bash

// Every name comes from the program, whole; nothing is split, expanded or run. Names of files are
// left to bash itself, which knows how to quote them.
static const char bash[] =
    "# bash completion for hokku: hokku --print-completion bash\n"
    "_hokku()\n{\n"
    "    local -a found=()\n"
    "    mapfile -d '' -t found < <(command hokku --complete bash \"$2\" "
    "\"${COMP_LINE:0:COMP_POINT}\" 2>/dev/null)\n"
    "    COMPREPLY=(\"${found[@]:1}\")\n"
    "    if [[ ${found[0]-} == files ]]; then compopt -o default 2>/dev/null; fi\n"
    "    if [[ ${found[0]-} != at-files ]]; then return; fi\n"
    "    local file typed=${2#@}\n"
    "    for file in \"${typed//\\\\/}\"*; do\n"
    "        if [[ -d $file ]]; then file+=/; fi\n"
    "        if [[ -e $file ]]; then COMPREPLY+=(\"@$(printf %q \"$file\")\"); fi\n"
    "    done\n"
    "    if [[ ${COMPREPLY[0]-} == */ ]]; then compopt -o nospace 2>/dev/null; fi\n"
    "}\n"
    "complete -F _hokku hokku\n";

// ----------------------------------------------------------------------------------------------
// fish

// The same; candidates come with what they are for, and fish quotes them itself.
static const char fish[] =
    "# fish completion for hokku: hokku --print-completion fish\n"
    "function __hokku\n"
    "    set -l word (commandline -ct)\n"
    "    set -l line (commandline -cp)\n"
    "    command hokku --complete fish \"$word\" \"$line\" 2>/dev/null | string split0\n"
    "end\n"
    "function __hokku_words\n"
    "    set -l found (__hokku)\n"
    "    set -e found[1]\n"
    "    string join \\n -- $found\n"
    "end\n"
    "function __hokku_wants_files\n"
    "    set -l found (__hokku)\n"
    "    test \"$found[1]\" = files\n"
    "end\n"
    "complete -c hokku -f -a '(__hokku_words)'\n"
    "function __hokku_wants_at_files\n"
    "    set -l found (__hokku)\n"
    "    test \"$found[1]\" = at-files\n"
    "end\n"
    "function __hokku_at_files\n"
    "    set -l parts (string split -m 1 @ -- (commandline -ct))\n"
    "    for file in (__fish_complete_path \"$parts[2]\")\n"
    "        set -l name (string split -m 1 \\t -- $file)\n"
    "        test -e \"$name[1]\"; and echo -- \"$parts[1]@$name[1]\"\n"
    "    end\n"
    "end\n"
    "complete -c hokku -n __hokku_wants_files -F\n"
    "complete -c hokku -n __hokku_wants_at_files -a '(__hokku_at_files)'\n";

// ----------------------------------------------------------------------------------------------
// zsh

// Inside '...[help]:...': quotes, brackets and colons must be kept from zsh.
static void zsh_text(struct buf *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            buf_puts(out, "'\\''");
        else if (strchr("[]:\\", *s))
            buf_printf(out, "\\%c", *s);
        else
            buf_putc(out, *s);
    }
}

static void zsh_option(struct buf *out, const struct option_def *d)
{
    buf_puts(out, "        ");
    // A repeatable option may come again; others exclude their other name.
    if (d->kind == OPT_LIST || strcmp(d->long_name, "--logit-bias") == 0)
        buf_puts(out, "'*'");
    else if (d->short_name)
        buf_printf(out, "'(%s %s)'", d->short_name, d->long_name);
    const char *eq = d->arg ? "=" : ""; // --option value and --option=value
    if (d->short_name)
        buf_printf(out, "{%s,%s%s}", d->short_name, d->long_name, eq);
    else
        buf_printf(out, "%s%s", d->long_name, eq);
    buf_puts(out, "'[");
    zsh_text(out, d->help);
    buf_putc(out, ']');
    if (d->arg) {
        enum complete_kind kind = complete_kind_of(d);
        buf_putc(out, ':');
        zsh_text(out, d->arg);
        buf_putc(out, ':');
        if (d->choices) {
            buf_putc(out, '(');
            for (const char *p = d->choices; *p; p++)
                buf_putc(out, *p == '|' ? ' ' : *p);
            buf_putc(out, ')');
        } else if (kind == COMPLETE_FILES) {
            buf_puts(out, "_files");
        } else if (complete_at_file(d)) {
            buf_puts(out, "{ compset -P @ && _files }");
        } else if (complete_or_file(d)) {
            buf_printf(out, "{ _hokku_names %s; _files }", complete_kind_name(kind));
        } else if (kind != COMPLETE_ANY) {
            buf_printf(out, "_hokku_names %s", complete_kind_name(kind));
        }
    }
    buf_puts(out, "' \\\n");
}

static const char *zsh_arguments(enum tool t)
{
    switch (t) {
    case TOOL_NONE:
        return "prompt:_files";
    case TOOL_REPLAY:
        return "session:{ _hokku_names sessions; _files }";
    case TOOL_PULL:
        return "model:_hokku_names models";
    case TOOL_SESSIONS:
        return "session:{ case $words[3],$CURRENT in (*,3|-*) compadd list rm mv export search ;; "
               "(rm,*|mv,4|export,4) _hokku_names sessions ;; (export,5) _files ;; esac }";
    case TOOL_MODELS:
        return "model:{ compadd list rm; _hokku_names models }";
    default:
        return "file:_files";
    }
}

static void print_zsh(struct buf *out)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    buf_puts(out, "#compdef hokku\n"
                  "# zsh completion for hokku: hokku --print-completion zsh\n"
                  "_hokku_names()\n{\n"
                  "    # The kind comes last, after what _arguments wants compadd to know.\n"
                  "    local -a names=(${(0)\"$(command hokku --complete $@[-1] 2>/dev/null)\"})\n"
                  "    compadd \"${@[1,-2]}\" -a names\n}\n"
                  "_hokku()\n{\n"
                  "    local tool=${words[2]}\n"
                  "    if (( CURRENT == 2 )); then\n"
                  "        local -a tools=(\n");
    for (int t = 1; t < N_TOOLS; t++) {
        buf_printf(out, "            '%s:", tool_name((enum tool)t));
        zsh_text(out, tool_what((enum tool)t));
        buf_puts(out, "'\n");
    }
    buf_puts(out, "        )\n        _describe tool tools\n    fi\n    case $tool in\n");
    for (int t = 1; t <= N_TOOLS; t++) {
        enum tool tool = t == N_TOOLS ? TOOL_NONE : (enum tool)t;
        buf_printf(out, "    %s)\n        _arguments \\\n", tool ? tool_name(tool) : "*");
        for (size_t i = 0; i < n; i++) {
            if (option_has_tool(&d[i], tool) && d[i].group)
                zsh_option(out, &d[i]);
        }
        buf_printf(out, "        '*:%s'\n        ;;\n", zsh_arguments(tool));
    }
    // From $fpath the file is the function; who has it from eval or source defines it alone.
    buf_puts(out, "    esac\n}\n"
                  "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _hokku \"$@\"\n"
                  "else\n    compdef _hokku hokku\nfi\n");
}

// ----------------------------------------------------------------------------------------------
// man

// roff: a backslash, a hyphen of an option, and a leading dot or quote have meanings of their own.
static void roff(struct buf *out, const char *s)
{
    if (*s == '.' || *s == '\'')
        buf_puts(out, "\\&");
    for (; *s; s++) {
        if (*s == '\\')
            buf_puts(out, "\\e");
        else if (*s == '-')
            buf_puts(out, "\\-");
        else
            buf_putc(out, *s);
    }
}

static void man_options(struct buf *out, enum tool t)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    const char *group = "";
    for (size_t i = 0; i < n; i++) {
        if (!option_has_tool(&d[i], t) || !d[i].group)
            continue;
        if (t == TOOL_NONE && strcmp(group, d[i].group) != 0) {
            group = d[i].group;
            buf_printf(out, ".SS %c%s\n", toupper((unsigned char)group[0]), group + 1);
        }
        buf_puts(out, ".TP\n.B ");
        if (d[i].short_name) {
            roff(out, d[i].short_name);
            buf_puts(out, ", ");
        }
        roff(out, d[i].long_name);
        if (d[i].arg) {
            buf_puts(out, " \\fI");
            roff(out, d[i].arg);
            buf_puts(out, "\\fR");
        }
        buf_putc(out, '\n');
        roff(out, d[i].help);
        const size_t n_help = strlen(d[i].help);
        buf_puts(out, n_help > 0 && d[i].help[n_help - 1] == '.' ? "\n" : ".\n"); // @coder ...
    }
}

static const char man_begin[] =
    ".SH NAME\nhokku \\- talk to a language model in a terminal or a pipe\n"
    ".SH SYNOPSIS\n.B hokku\n[\\fIoptions\\fR] [\\fIPROMPT\\fR]\n.br\n.B hokku\n\\fITOOL\\fR "
    "[\\fIoptions\\fR] ...\n"
    ".SH DESCRIPTION\n"
    "Loads a GGUF language model once and answers. Without a prompt and with a terminal it chats; "
    "with a prompt, or text on standard input, it answers once. The answer, and nothing else, goes "
    "to standard output; prompts, progress, notices and a model\\(aqs thinking go to standard "
    "error. PROMPT, the file of\n.B \\-f\nand standard input are joined in this order, a blank "
    "line between them; where nothing has come on it for two seconds, a terminal is told that it "
    "is waited for.\n.PP\nWithout\n.B \\-m\nand\n.B \\-hf\nthe model is $HOKKU_MODEL if that "
    "is set, else a small built\\-in one.\n"
    ".SH OPTIONS\nEvery option but \\-\\-help, \\-\\-version and \\-\\-dry\\-run may also stand in "
    "the configuration file by its long name, one per line, or in the environment as HOKKU_NAME, "
    "which wins over the file; the command line wins over both, also over an option that excludes "
    "its own. Where an option may be given more than once, all that is in one of them counts, and "
    "nothing of the others.\n";

static const char man_end[] =
    ".SH KEYS\n"
    "Several lines: \"\"\" before and after, a \\e at the end of a line, Ctrl\\-J, Alt\\-Enter, or "
    "paste. Keys are those of Emacs; Up and Down move within the message, and beyond its edges "
    "through the "
    "history. Tab completes commands, settings, files and sessions. Ctrl\\-R searches the history. "
    "Ctrl\\-C stops an answer and keeps what there is of it; Ctrl\\-D leaves.\n"
    ".SH SESSIONS\n"
    "A named session is saved after every turn: messages, exact tokens, settings and the "
    "model\\(aqs "
    "memory, so that it goes on at once and exactly as if it had not been interrupted; "
    "\\fB\\-\\-no\\-kv\\fR saves the text alone, which is small and read again. Each save appends "
    "what is "
    "new. Only one hokku at a time writes a session.\n"
    ".PP\nA chat without a name is kept too, its text alone, mode 0600: the 20 latest. "
    "\\fB\\-\\-continue\\fR goes on with the chat that was saved last, however it ended. "
    "\\fB\\-\\-base\\fR begins with a saved session, or with a file where none has that name, and "
    "never changes it; with \\fB\\-\\-lines\\fR "
    "every line does. "
    "\\fB\\-\\-no\\-history\\fR keeps nothing. \\fIhokku sessions\\fR lists, renames, removes, "
    "exports "
    "and searches them.\n"
    ".PP\nA saved conversation goes on with its own model, the file that it names, unless "
    "\\fB\\-m\\fR or \\fB\\-hf\\fR is on the command line: $HOKKU_MODEL and the configuration are "
    "for new ones. Where that file is gone they are taken, which is said. Its system prompt and "
    "settings stay, too, but for what the command line names or excludes.\n"
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\ndone\n.TP\n.B 1\nfailure while running\n.TP\n.B 2\nwrong usage\n"
    ".TP\n.B 3\nthe model cannot be loaded\n.TP\n.B 4\nnot enough memory\n"
    ".TP\n.B 5\nthe prompt does not fit the context\n.TP\n.B 141\nkilled by SIGPIPE, quietly\n.PP\n"
    "Interrupted outside the chat, hokku dies of SIGINT, SIGTERM or SIGHUP; a second signal kills "
    "at once. (One that the same process sends twice within 50 ms, as timeout(1) does, is one.)\n"
    ".SH FILES\n"
    ".TP\n.I $XDG_CONFIG_HOME/hokku/config\noptions, one per line, where ~/ "
    "begins a file in your home; "
    "while it cannot be read, hokku says why and does nothing but \\-\\-help and "
    "\\-\\-version\n"
    ".TP\n.I $XDG_STATE_HOME/hokku/history\nthe lines typed\n"
    ".TP\n.I $XDG_CONFIG_HOME/hokku/prompts\nsystem prompts of your own, NAME.txt for @NAME\n"
    ".TP\n.I $XDG_STATE_HOME/hokku/sessions\nsaved sessions\n"
    ".TP\n.I $XDG_CACHE_HOME/hokku\ndownloaded models\n"
    ".SH ENVIRONMENT\n.TP\n.B HOKKU_MODEL\nthe model when none is named, by a saved conversation "
    "neither\n.TP\n.B NO_COLOR\nno "
    "colour, if not empty\n"
    ".TP\n.B HF_TOKEN\na token of the Hugging Face Hub; else the file $HF_TOKEN_PATH or "
    "$HF_HOME/token\n"
    ".TP\n.B HF_ENDPOINT\nanother Hub than https://huggingface.co\n"
    ".TP\n.B HF_HUB_CACHE\nthe cache of Hugging Face\\(aqs own programs, used if it has the model "
    "(default: $HF_HOME/hub)\n"
    ".TP\n.B HF_HUB_DOWNLOAD_TIMEOUT\nseconds after which a silent server is given up on (default: "
    "30)\n"
    ".TP\n.B SSL_CERT_FILE\ncertificates to trust instead of the system\\(aqs\n"
    ".SH EXAMPLES\n.nf\nhokku \\-m model.gguf\nhokku \\-m model.gguf \\(dqWrite a haiku\\(dq\n"
    "git diff | hokku \\(dqWrite a commit message for this change:\\(dq | tee message.txt\n"
    "hokku \\-m model.gguf \\-sys @terse \\-\\-session work\n"
    "hokku \\-hf Qwen/Qwen2.5\\-0.5B\\-Instruct\\-GGUF:q4_k_m \\(dqHi\\(dq\n.fi\n";

static void print_man(const char *version, const struct manual_command *c, size_t n,
                      struct buf *out)
{
    buf_printf(out,
               ".\\\" Made by hokku --print-completion man; change the tables, not this.\n"
               ".TH HOKKU 1 \"\" \"hokku %s\" \"User Commands\"\n",
               version);
    buf_puts(out, man_begin);
    man_options(out, TOOL_NONE);
    buf_puts(out, ".SH TOOLS\n");
    for (int t = 1; t < N_TOOLS; t++) {
        buf_printf(out, ".SS hokku %s ", tool_name((enum tool)t));
        roff(out, tool_usage((enum tool)t));
        buf_putc(out, '\n');
        roff(out, tool_what((enum tool)t));
        buf_puts(out, ".\n");
        man_options(out, (enum tool)t);
    }
    buf_puts(out,
             ".SH COMMANDS\nIn the chat a line that begins with / is a command, but of a message "
             "that began with it and is edited; what stands between \"\"\" and \"\"\" is none.\n");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, ".TP\n.B %s%s%s \\fI", c[i].name, c[i].alias ? ", " : "",
                   c[i].alias ? c[i].alias : "");
        roff(out, c[i].args);
        buf_puts(out, "\\fR\n");
        roff(out, c[i].help);
        buf_puts(out, ".\n");
    }
    buf_puts(out, man_end);
}

bool manual_print(const char *kind, const char *version, const struct manual_command *commands,
                  size_t n_commands, struct buf *out, struct error *err)
{
    if (strcmp(kind, "bash") == 0)
        buf_puts(out, bash);
    else if (strcmp(kind, "fish") == 0)
        buf_puts(out, fish);
    else if (strcmp(kind, "zsh") == 0)
        print_zsh(out);
    else if (strcmp(kind, "man") == 0)
        print_man(version, commands, n_commands, out);
    else
        return error_set(err, ERR_USAGE,
                         "--print-completion: found \"%.40s\", expected bash, zsh, fish or man",
                         kind);
    return !out->failed || error_oom(err, "the text", out->len);
}
