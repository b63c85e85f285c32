#include "chat/lineedit.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <readline/readline.h>
#include <readline/history.h>

#include "base/clock.h"
#include "base/termsafe.h"
#include "chat/terminal.h"

// readline's callbacks carry no pointer of ours.
static struct {
    const struct line_editor *e;
    bool done, files;
    char *line;
    double last_key, gap; // when the last byte came, and how long after the one before it
    const char *initial;
} L;

static int read_byte(FILE *f)
{
    unsigned char c;
    ssize_t n;
    do
        n = read(fileno(f), &c, 1);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return EOF;
    double now = clock_now();
    L.gap = now - L.last_key;
    L.last_key = now;
    return c;
}

static bool more_input_soon(int ms)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

// Alt-Enter.
static int insert_newline(int count, int key)
{
    (void)count, (void)key;
    return rl_insert_text("\n");
}

// Ctrl-J. A program that types for someone ("text\n" in one write) means Enter: nobody types a
// letter and Ctrl-J within a hundredth of a second and then nothing more.
static int control_j(int count, int key)
{
    bool burst = rl_end == 0 || L.gap < 0.01;
    if (burst && !more_input_soon(20))
        return rl_newline(count, key);
    return insert_newline(count, key);
}

static char *next_candidate(const char *word, int state)
{
    bool files = false;
    char *s = L.e->complete(L.e->user, rl_line_buffer, (size_t)(rl_point - (int)strlen(word)), word,
                            state, &files);
    if (files) {
        L.files = true;
        free(s);
        return NULL;
    }
    return s;
}

// Names of files are shown and inserted raw by readline: those that a terminal should not see are
// not offered. matches[0] is what all have in common, or the only one.
static int drop_unsafe(char **matches)
{
    bool alone = !matches[1];
    size_t n = 1;
    for (size_t i = 1; matches[i]; i++) {
        if (termsafe_all_plain(matches[i], strlen(matches[i])))
            matches[n++] = matches[i];
        else
            free(matches[i]);
    }
    matches[n] = NULL;
    if (alone ? !termsafe_all_plain(matches[0], strlen(matches[0])) : n == 1) {
        free(matches[0]);
        matches[0] = NULL;
    }
    return 0;
}

static char **complete(const char *word, int begin, int end)
{
    (void)begin, (void)end;
    L.files = false;
    char **matches = L.e->complete ? rl_completion_matches(word, next_candidate) : NULL;
    rl_attempted_completion_over = !L.files;
    rl_filename_completion_desired = L.files;
    return matches;
}

static void on_line(char *line)
{
    L.line = line;
    L.done = true;
    rl_callback_handler_remove();
}

static int put_initial(void)
{
    if (L.initial)
        rl_insert_text(L.initial);
    return 0;
}

void lineedit_begin(const struct line_editor *e)
{
    L.e = e;
    rl_readline_name = "hokku";
    rl_instream = stdin;
    rl_outstream = stderr;
    rl_catch_signals = 0;
    rl_catch_sigwinch = 0;
    rl_change_environment = 0;
    rl_getc_function = read_byte;
    rl_attempted_completion_function = complete;
    rl_ignore_some_completions_function = drop_unsafe;
    rl_basic_word_break_characters = " \t\n";
    rl_completer_quote_characters = "";
    rl_startup_hook = put_initial;
    rl_initialize();
    rl_variable_bind("enable-bracketed-paste", "on");
    rl_variable_bind("blink-matching-paren", "off");
    rl_variable_bind("bell-style", "none");
    rl_variable_bind("show-all-if-ambiguous", "on");
    rl_bind_keyseq("\\C-j", control_j);
    rl_bind_keyseq("\\e\\C-m", insert_newline);
    rl_bind_keyseq("\\e\\C-j", insert_newline);
    using_history();
    stifle_history(4000);
}

void lineedit_end(void)
{
    clear_history();
    L.e = NULL;
}

void lineedit_add_history(const char *entry)
{
    HIST_ENTRY *last = history_length > 0 ? history_get(history_base + history_length - 1) : NULL;
    if (!last || strcmp(last->line, entry) != 0)
        add_history(entry);
}

// Leaves the line as it stands on the screen and moves below it.
static void abandon(void)
{
    rl_point = rl_end;
    rl_callback_sigcleanup();
    rl_free_line_state();
    rl_callback_handler_remove();
    fputs("\n", rl_outstream);
    fflush(rl_outstream);
}

static void suspend(void)
{
    rl_deprep_terminal();
    terminal_set_mode(TERMINAL_COOKED);
    fputs("\n", rl_outstream);
    fflush(rl_outstream);
    terminal_suspend();
    terminal_set_mode(TERMINAL_EDITING);
    rl_prep_terminal(1);
    rl_resize_terminal();
    rl_on_new_line();
    rl_redisplay();
}

enum line_result lineedit_read(const char *prompt, const char *initial, char **text,
                               bool *was_empty)
{
    *text = NULL;
    *was_empty = true;
    L.done = false;
    L.line = NULL;
    L.initial = initial;
    terminal_set_mode(TERMINAL_COOKED); // readline saves the modes that it finds
    terminal_events();
    terminal_set_mode(TERMINAL_EDITING);
    rl_reset_screen_size();
    rl_callback_handler_install(prompt, on_line);
    enum line_result result = LINE_TEXT;
    while (!L.done && result == LINE_TEXT) {
        struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = terminal_event_fd(), .events = POLLIN}};
        if (terminal_death()) {
            result = LINE_DEATH;
            break;
        }
        if (poll(p, 2, -1) < 0 && errno != EINTR) {
            result = LINE_END;
            break;
        }
        if (p[1].revents) {
            struct terminal_events ev = terminal_events();
            if (ev.resize) {
                rl_resize_terminal();
            }
            if (ev.stop)
                suspend();
            if (ev.interrupt) {
                *was_empty = rl_end == 0;
                result = LINE_INTERRUPT;
                continue;
            }
        }
        if (p[0].revents)
            rl_callback_read_char();
    }
    if (!L.done)
        abandon();
    terminal_set_mode(TERMINAL_COOKED);
    L.initial = NULL;
    if (!L.done)
        return result;
    if (!L.line)
        return LINE_END;
    *text = L.line;
    *was_empty = L.line[0] == '\0';
    return LINE_TEXT;
}
