// One conversation: a model on an engine, its chat template, the messages, and the exact tokens of
// every answer. Each answer is made by rendering the messages, evaluating what is new, and decoding
// on; the ids that the model generated are kept and never tokenised again.
#ifndef HOKKU_DIALOG_CONVERSATION_H
#define HOKKU_DIALOG_CONVERSATION_H

#include <jansson.h>

#include "dialog/think.h"
#include "engine/session.h"
#include "jinja/template.h"

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT };
const char *role_name(enum role r);

// What one run of the sampler needs to be repeated: an answer has one, and one more for each
// /continue.
struct answer_run {
    size_t first_id;                 // of the answer's ids that this run generated
    struct sampler_settings sampler; // dry_breakers is NULL here
    bool ignore_eos;
    bool constrained; // by what a session does not hold: it cannot be repeated
    enum think think;
    enum overflow overflow;
    size_t first_kept;    // messages dropped for room at that time: [1 system) .. first_kept
    size_t n_keep;        // tokens at the start that overflow shift kept
    size_t n_ctx;         // of the context that it was to shift; 0: not recorded
    enum finish finish;   // how it ended
    uint64_t prefix_hash; // of the tokens before it, so that a replay knows its ground
};

struct message {
    enum role role;
    const json_t *fields; // borrowed: all that a template is told of it; NULL: role and text
    struct buf text;      // exact bytes; an answer's thinking and tags included
    // Answers only:
    struct ids ids;     // prefill tokens, then everything sampled, the end token included
    size_t n_prefill;   // ids of the start that the user gave
    bool has_end_token; // the last id is the end token and no part of the text
    bool partial;       // interrupted, cut by a limit, or a failure while decoding
    size_t thinking_at, thinking_end, answer_at; // parts of text
    struct answer_run *runs;
    size_t n_runs;
};

// An answer's text without its thinking and the marks around them.
const char *message_answer(const struct message *m, size_t *n);

struct conversation {
    const struct model *model; // borrowed
    struct session session;    // its timeline is the model's memory
    struct template *tmpl;     // owned; NULL: plain completion
    uint32_t template_crc;     // of its source
    unsigned think_fields;     // think_fields of its source
    const json_t *tools;       // borrowed: those that the template is told of; NULL: none
    int64_t now;               // what strftime_now sees, fixed when the conversation began
    struct message *messages;  // owned; [0] is the system prompt when has_system
    size_t n_messages;         // live ones
    size_t n_undone;           // behind the live ones, next to redo first
    size_t cap;
    struct message *stash; // owned: what could be redone before the last message was added
    size_t n_stash;
    bool has_system;
    bool behind;                 // the memory ends before the messages do, until the next answer
    size_t first_kept;           // messages before it (the system prompt excepted) are dropped
    bool system_merged;          // the template refuses system prompts: it leads the first message
    bool special;                // without a template: names of control tokens mean these tokens
    const struct cancel *cancel; // ends rendering, tokenising, answering; NULL: nothing does
    bool no_larger;              // memory has room for no larger context
    size_t most_ids;             // a prompt of more is refused unsplit (ERR_CONTEXT); 0: none is
    uint8_t *dry_breakers;       // owned, see struct sampler_settings; NULL: not needed so far
};

// Begins an empty conversation. template_text NULL: plain completion. The caller may set `cancel`.
// Errors: a template that does not parse.
bool conversation_init(struct conversation *c, const struct model *m, struct engine *e,
                       const char *template_text, size_t n_template, int64_t now,
                       struct error *err);
// What there is to do where a prompt does not fit the context.
const char *conversation_make_fit(const struct conversation *c);
void conversation_release(struct conversation *c); // zeroed is fine; not the engine or the model
// Gives s the tokens whose text holds a DRY sequence breaker, if it uses DRY; they are found once,
// when first needed, which takes a walk over the vocabulary. Borrowed from the conversation.
bool conversation_set_breakers(struct conversation *c, struct sampler_settings *s,
                               struct error *err);
// Forgets all messages but the system prompt; the model's memory is rewound.
void conversation_clear(struct conversation *c);

// The same, but the memory stays as it is, so that the next prompt reuses a common beginning.
void conversation_restart(struct conversation *c);

// The same, but the first n messages stay, of which those before first_kept are dropped.
void conversation_restart_at(struct conversation *c, size_t n, size_t first_kept);

// Whether a text (what: which) may be put into c: a template is given UTF-8. Errors: ERR_USAGE.
bool conversation_check(const struct conversation *c, const char *what, const char *text, size_t n,
                        struct error *err);
// n = 0 removes the system prompt. Takes effect from the next answer on, in place.
bool conversation_set_system(struct conversation *c, const char *text, size_t n, struct error *err);
// Appends a message; once it is answered, what could have been redone is forgotten. Errors:
// ERR_USAGE for text that is not UTF-8 when a template is to be rendered.
bool conversation_add(struct conversation *c, enum role role, const char *text, size_t n,
                      struct error *err);

struct answer_params {
    const struct sampler_settings *sampler;
    int64_t n_predict; // < 0: until the model ends or the context is full
    bool ignore_eos;
    const char *const *stop;
    size_t n_stop;
    uint32_t n_probs;
    enum overflow overflow;
    const char *makes_room; // where older turns fill the context, besides a larger one; or NULL
    enum spec spec;         // changes no text
    enum think think;
    const char *prefill; // start of the answer, NULL: none
    size_t n_prefill;
    struct constraint *constraint; // what the answer must obey; NULL: nothing
    // All may be NULL. on_text: whole UTF-8 sequences as soon as they are certain, tags left out,
    // thinking also when it is to be hidden. on_notice: one line that the user must see (what was
    // dropped, what the template refused).
    bool (*on_text)(void *user, enum answer_part part, const char *text, size_t n,
                    struct error *err);
    void (*on_token)(void *user, const struct decoded *d);
    void (*on_prefill)(void *user, size_t done, size_t total);
    void (*on_notice)(void *user, const char *line);
    void *user;
};

// Answers the last message (a user's) and appends the answer. When it fails or is interrupted
// before the first token, nothing is appended: the caller takes the user's message back with
// conversation_undo. Interrupted later: the partial answer is kept, *finish says so and the call
// succeeds. Errors: ERR_CONTEXT (both lengths), ERR_INTERRUPTED, those of the engine and template.
bool conversation_answer(struct conversation *c, const struct answer_params *p, enum finish *finish,
                         struct error *err);
// Goes on with the last answer, its end token taken off. prefill is not used.
bool conversation_continue(struct conversation *c, const struct answer_params *p,
                           enum finish *finish, struct error *err);

// Takes back the last n_turns turns (a turn: a user's message and its answer), at most all, and
// rewinds the model's memory to what it was before them. Returns the turns taken back.
size_t conversation_undo(struct conversation *c, size_t n_turns);
size_t conversation_redo(struct conversation *c, size_t n_turns); // the opposite
// Takes back the last message for good, a user's that got no answer; what could be redone before it
// can be redone again. The memory stays.
void conversation_take_back(struct conversation *c);
// Moves the messages of `from` (same model) into c, whose own are released; not the memory.
void conversation_take_messages(struct conversation *c, struct conversation *from);
// Makes the messages of c, which were another model's, those of model_of's: their text stays, the
// ids of answers are what its tokenizer makes of it, and how they were sampled is forgotten. On
// failure nothing has changed. Errors: ERR_USAGE (no UTF-8 for a template), ERR_INTERRUPTED,
// ERR_MEMORY.
bool conversation_read_anew(struct conversation *c, const struct conversation *model_of,
                            struct error *err);
// Takes off only the last answer, which must be there, for a retry; and puts it back where none
// came in its place, with what could be redone behind it. Errors: ERR_MEMORY.
bool conversation_take_answer(struct conversation *c, struct message *answer, struct error *err);
void conversation_put_answer(struct conversation *c, struct message *answer);

size_t conversation_n_turns(const struct conversation *c);
// The user's message of turn i (0 = first), NULL when there is none.
struct message *conversation_turn(const struct conversation *c, size_t i);
struct message *conversation_last_answer(const struct conversation *c); // NULL: none yet

// Why the model is not told that it is to think (THINK_ON) or not (THINK_OFF): a clause. NULL: it
// is, or there is nothing to tell.
const char *conversation_unheard(const struct conversation *c, enum think think);

// The tokens with which the answer to the first n messages begins: rendered, tokenised, recorded
// ids put in. open_tag (may be NULL): the thinking tag that the prompt leaves open, or NULL.
bool conversation_prefix(struct conversation *c, size_t n_messages, enum think think,
                         struct ids *out, const char **open_tag, struct error *err);
// The same after overflow handling of a recorded run: what was evaluated before it began.
bool conversation_run_prefix(struct conversation *c, size_t answer_index, size_t run,
                             struct ids *out, struct error *err);

uint64_t conversation_hash(const int32_t *ids, size_t n); // FNV-1a over the ids

// Tokens of each turn as the model sees them now: counts[n_turns], and *head for what comes before
// the first (system prompt, BOS). Dropped turns count 0.
bool conversation_count(struct conversation *c, enum think think, size_t *head, size_t *counts,
                        struct error *err);

// The session's memory cut to n tokens (no more than there are).
void conversation_rewind(struct conversation *c, size_t n);

void message_release(struct message *m); // zeroed is fine

#endif
