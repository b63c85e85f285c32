// Many answers on one engine: each pass has a row of every answer that is being decoded and a chunk
// of the prompts that are being read. An answer that ends leaves, and the next one enters at once,
// in the order in which they were added. What is evaluated already of the beginning of a prompt, by
// whichever other, is shared. An answer is the same however many run beside it, as far as the
// engine's logits are (engine.h).
//
// Rows that are being decoded never wait long for prompts: see schedule_prompt_room.
//
// Memory: a task enters when the pool has room for its prompt and an answer of usual length, and
// for what those that run need of that. When longer ones fill the pool, the youngest leaves until
// there is room again, and is read again then.
#ifndef HOKKU_ENGINE_SCHEDULE_H
#define HOKKU_ENGINE_SCHEDULE_H

#include "engine/generation.h"
#include "engine/guesses.h"

struct task { // must not move while a schedule has it
    // Of whoever adds it; borrowed until it is done.
    const struct ids *prompt;
    const struct generate_params *p; // (the flag that cancels is the schedule's)
    struct generated *g;             // what came so far; also when it fails
    // Of the schedule; to be read.
    bool done;
    struct error error;         // done: ERR_NONE, or why it failed
    struct session_stats stats; // of the answer; final when done
    size_t n_tokens;            // done: of its sequence
    // Of the schedule.
    struct session session; // its sequence: NULL while it waits
    struct generation gen;
    struct ids rest; // what its sequence is to be before the next token is sampled
    bool reading;    // it is not so yet
    double entered;  // for the first time
    uint64_t tickets[ENGINE_RUN_AHEAD + 1];
    size_t n_ahead; // picks asked for that are not waited for: only while it runs alone
    size_t n_guesses, most_guesses; // of its speculation, that the next pass may check
    struct task *next;
};

struct schedule {
    struct engine *engine; // borrowed
    const struct cancel *cancel;
    size_t n_parallel;
    struct task **running; // owned (n_parallel), oldest first
    size_t n_running;
    struct task *waiting; // oldest first
    size_t n_waiting;
    struct seq *stem;  // owned: evaluated tokens with which prompts begin; NULL: none
    struct ids common; // what all prompts so far begin with
    bool any;          // a prompt was there
    // Owned (n_parallel, or most_kept): of answers that are done, the latest last; with most_kept 0
    // until the next step.
    struct seq **kept;
    size_t n_kept, most_kept;
    struct work *works;    // owned (n_parallel), of a pass
    struct task **with;    // owned (n_parallel): whose they are
    struct decoded *picks; // owned (n_parallel + ENGINE_MAX_PASS_DRAFTS)
    struct guesses guesses;
    size_t prompt_room; // tokens of prompts in the next pass beside rows that are decoded
    double plain_s;     // of the last pass without prompts, 0: none yet
};

// n_parallel: tasks that run together at most, 0: as many as the engine takes in a pass. base
// (NULL: none): a sequence whose evaluated tokens prompts may begin with; they are taken from it.
// Errors: ERR_MEMORY.
bool schedule_init(struct schedule *s, struct engine *e, size_t n_parallel, struct seq *base,
                   const struct cancel *cancel, struct error *err);
// Lets prompts also begin with any of the last n answers that are done, their prompts included, as
// long as nothing else needs the memory: for prompts that have little in common with all others.
// Errors: ERR_MEMORY.
bool schedule_keep(struct schedule *s, size_t n, struct error *err);
// Lets answers bring guesses where they pay and the engine takes any (engine/guesses.h): no answer
// depends on it. draft: borrowed, of a draft model or the prediction layer; NULL: from their own
// texts alone. Before the first task. Errors: ERR_MEMORY.
bool schedule_speculate(struct schedule *s, struct engine *draft, struct error *err);
void schedule_release(struct schedule *s); // tasks that are not done are let go; zeroed is fine

// A new task behind the others; t->prompt, p and g are set. Errors: ERR_MEMORY, ERR_CONTEXT (the
// prompt is longer than the context), ERR_FAIL (it is empty): the task is not added.
bool schedule_add(struct schedule *s, struct task *t, struct error *err);
// Lets go of a task that is not done; its seat is free.
void schedule_remove(struct schedule *s, struct task *t);
// Whether another task could run soon.
bool schedule_wants(const struct schedule *s);
bool schedule_idle(const struct schedule *s); // nothing runs or waits
// One pass. Tasks that end in it are done then. Errors: ERR_INTERRUPTED: none is done by that; what
// else fails is the tasks' error.
bool schedule_step(struct schedule *s, struct error *err);

// Tokens of prompts, at most `most`, for the next pass beside rows that are being decoded, which
// wait for it: 50 ms, or twice as long as without prompts. The last pass had room for `room`, read
// n > 0 and took `seconds`; plain: what one without takes, 0: not known.
size_t schedule_prompt_room(size_t room, size_t most, size_t n, double seconds, double plain);

#endif
