#include "main_manual.h"

#include <ctype.h>
#include <string.h>

#include "chat/commands.h"
#include "options.h"

static bool has_tool(const struct option_def *d, enum tool t)
{
    return d->tools >> t & 1;
}

static bool is_file(const struct option_def *d)
{
    return d->arg && (strcmp(d->arg, "FILE") == 0 || strcmp(d->arg, "TEXT|@NAME") == 0);
}

// ---------------------------------------------------------------------------------------------
// bash

static void bash_options(struct buf *out, enum tool t)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (!has_tool(&d[i], t) || !d[i].group)
            continue;
        if (d[i].short_name)
            buf_printf(out, "%s ", d[i].short_name);
        buf_printf(out, "%s ", d[i].long_name);
    }
}

static void bash_names(struct buf *out, const struct option_def *d)
{
    buf_printf(out, "        %s%s%s)", d->short_name ? d->short_name : "", d->short_name ? "|" : "",
               d->long_name);
}

static void print_bash(struct buf *out)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    buf_puts(out,
             "# bash completion for hokku: hokku --print-completion bash\n"
             "_hokku()\n{\n"
             "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options\n"
             "    local state=${XDG_STATE_HOME:-$HOME/.local/state}/hokku/sessions\n"
             "    COMPREPLY=()\n"
             "    case $prev in\n");
    for (size_t i = 0; i < n; i++) {
        if (!d[i].arg || !d[i].group)
            continue;
        bash_names(out, &d[i]);
        if (d[i].choices) {
            buf_puts(out, " COMPREPLY=($(compgen -W \"");
            for (const char *p = d[i].choices; *p; p++)
                buf_putc(out, *p == '|' ? ' ' : *p);
            buf_puts(out, "\" -- \"$cur\"));");
        } else if (strcmp(d[i].long_name, "--session") == 0) {
            buf_puts(out,
                     " COMPREPLY=($(compgen -W \"$(cd \"$state\" 2>/dev/null && ls -1 | sed -n "
                     "'s/\\.session$//p')\" -- \"$cur\"));");
        } else if (is_file(&d[i])) {
            buf_puts(out, " COMPREPLY=($(compgen -f -- \"$cur\"));");
        } else if (strcmp(d[i].long_name, "--device") == 0) {
            buf_puts(out, " COMPREPLY=($(compgen -W \"auto cuda cpu\" -- \"$cur\"));");
        }
        buf_puts(out, " return;;\n");
    }
    buf_puts(out, "    esac\n    case ${COMP_WORDS[1]} in\n");
    for (int t = 1; t < N_TOOLS; t++) {
        buf_printf(out, "        %s) options=\"", tool_name((enum tool)t));
        bash_options(out, (enum tool)t);
        buf_puts(out, "\";;\n");
    }
    buf_puts(out, "        *) options=\"");
    bash_options(out, TOOL_NONE);
    buf_puts(out, "\"\n           [[ $COMP_CWORD == 1 ]] && options+=\"");
    for (int t = 1; t < N_TOOLS; t++)
        buf_printf(out, "%s ", tool_name((enum tool)t));
    buf_puts(out, "\";;\n    esac\n"
                  "    if [[ $cur == -* || $COMP_CWORD == 1 ]]; then\n"
                  "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
                  "    fi\n"
                  "    [[ ${#COMPREPLY[@]} == 0 ]] && COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                  "}\n"
                  "complete -o filenames -F _hokku hokku\n");
}

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
    if (d->short_name)
        buf_printf(out, "{%s,%s}", d->short_name, d->long_name);
    else
        buf_puts(out, d->long_name);
    buf_puts(out, "'[");
    zsh_text(out, d->help);
    buf_putc(out, ']');
    if (d->arg) {
        buf_putc(out, ':');
        zsh_text(out, d->arg);
        buf_putc(out, ':');
        if (d->choices) {
            buf_putc(out, '(');
            for (const char *p = d->choices; *p; p++)
                buf_putc(out, *p == '|' ? ' ' : *p);
            buf_putc(out, ')');
        } else if (strcmp(d->long_name, "--session") == 0) {
            buf_puts(out, "_hokku_sessions");
        } else if (is_file(d)) {
            buf_puts(out, "_files");
        }
    }
    buf_puts(out, "' \\\n");
}

static void print_zsh(struct buf *out)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    buf_puts(out, "#compdef hokku\n"
                  "# zsh completion for hokku: hokku --print-completion zsh\n"
                  "_hokku_sessions()\n{\n"
                  "    local dir=${XDG_STATE_HOME:-$HOME/.local/state}/hokku/sessions\n"
                  "    local -a names=($dir/*.session(N:t:r))\n"
                  "    compadd -a names\n}\n"
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
            if (has_tool(&d[i], tool) && d[i].group)
                zsh_option(out, &d[i]);
        }
        buf_printf(out, "        '*:%s:_files'\n        ;;\n", tool ? "file" : "prompt");
    }
    buf_puts(out, "    esac\n}\n_hokku \"$@\"\n");
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
        if (!has_tool(&d[i], t) || !d[i].group)
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
        buf_puts(out, ".\n");
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
    "line between them.\n.PP\nWithout\n.B \\-m\nand\n.B \\-hf\nthe model is $HOKKU_MODEL if that "
    "is set, else a small built\\-in one.\n"
    ".SH OPTIONS\nEvery option may also stand in the configuration file by its long name, one per "
    "line, or in the environment as HOKKU_NAME; the command line wins.\n";

static const char man_end[] =
    ".SH KEYS\n"
    "Several lines: \"\"\" before and after, a \\e at the end of a line, Ctrl\\-J, Alt\\-Enter, or "
    "paste. Tab completes commands, settings, files and sessions. Ctrl\\-R searches the history. "
    "Ctrl\\-C stops an answer and keeps what there is of it; Ctrl\\-D leaves.\n"
    ".SH SESSIONS\n"
    "A named session is saved after every turn: messages, exact tokens, settings and the "
    "model\\(aqs "
    "memory, so that it goes on at once and exactly as if it had not been interrupted. Only one "
    "hokku at a time writes a session.\n"
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\ndone\n.TP\n.B 1\nfailure while running\n.TP\n.B 2\nwrong usage\n"
    ".TP\n.B 3\nthe model cannot be loaded\n.TP\n.B 4\nnot enough memory\n"
    ".TP\n.B 5\nthe prompt does not fit the context\n.TP\n.B 141\nkilled by SIGPIPE, quietly\n.PP\n"
    "Interrupted outside the chat, hokku dies of SIGINT.\n"
    ".SH FILES\n"
    ".TP\n.I $XDG_CONFIG_HOME/hokku/config\noptions, one per line\n"
    ".TP\n.I $XDG_STATE_HOME/hokku/history\nthe lines typed\n"
    ".TP\n.I $XDG_STATE_HOME/hokku/sessions\nsaved sessions\n"
    ".TP\n.I $XDG_CACHE_HOME/hokku\ndownloaded models\n"
    ".SH ENVIRONMENT\n.TP\n.B HOKKU_MODEL\nthe model when none is named\n.TP\n.B NO_COLOR\nno "
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

static void print_man(const char *version, struct buf *out)
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
    buf_puts(out, ".SH COMMANDS\nIn the chat a line that begins with / is a command.\n");
    size_t n;
    const struct command *c = commands_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (!c[i].help)
            continue;
        buf_printf(out, ".TP\n.B %s%s%s \\fI", c[i].name, c[i].alias ? ", " : "",
                   c[i].alias ? c[i].alias : "");
        roff(out, c[i].args);
        buf_puts(out, "\\fR\n");
        roff(out, c[i].help);
        buf_puts(out, ".\n");
    }
    buf_puts(out, man_end);
}

bool manual_print(const char *kind, const char *version, struct buf *out, struct error *err)
{
    if (strcmp(kind, "bash") == 0)
        print_bash(out);
    else if (strcmp(kind, "zsh") == 0)
        print_zsh(out);
    else if (strcmp(kind, "man") == 0)
        print_man(version, out);
    else
        return error_set(err, ERR_USAGE,
                         "--print-completion: found \"%.40s\", expected bash, zsh or man", kind);
    return !out->failed || error_oom(err, "the text", out->len);
}
