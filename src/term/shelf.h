// What /clear, /load, /edit and /retry replace is put on a shelf, from where /undo brings it back;
// and /redo brings back what /undo took away with that.
#ifndef HOKKU_TERM_SHELF_H
#define HOKKU_TERM_SHELF_H

#include "dialog/conversation.h"
#include "dialog/session_store.h"
#include "cli/options.h"

enum { SHELF_MAX = 32 }; // the oldest is forgotten then

struct shelf_entry {
    struct buf messages; // encoded
    size_t first_kept;
    bool system_merged;
    int64_t now;
    size_t turns;             // of the conversation that took its place, when it had
    size_t undone;            // of its own, at its end, were taken back: next to redo
    bool left;                // its session was left, too
    char *session;            // the name of that; owned; NULL: it had none
    struct session_mark file; // of that, as this process knows it
    struct options *settings; // that /load replaced, too; owned; NULL: it did not
    unsigned n_model;         // which of the models in turn its tokens are of
};

struct shelf {
    struct options *opt; // where sessions are; the settings that /undo brings back
    unsigned n_model;    // of how many models in turn this is the last
    struct shelf_entry before[SHELF_MAX], after[SHELF_MAX];
    size_t n_before, n_after;
    bool biases_gone; // of the settings that came back: they named tokens of another model
};

void shelf_release(struct shelf *s);
// Before something is replaced: keeps a copy. Errors: ERR_MEMORY.
bool shelf_put(struct shelf *s, const struct conversation *c, struct error *err);
// The session of what was put there last is left now: *session becomes empty.
void shelf_left(struct shelf *s, struct session_lock *session);
// And so are the settings, which were `before`. Errors: ERR_MEMORY.
bool shelf_settings(struct shelf *s, const struct options *before, struct error *err);
// A session has another name now: what was left in it goes back to it.
void shelf_renamed(struct shelf *s, const char *from, const char *to);
// The conversation goes on with another model: what is on the shelf is read anew when it comes
// back.
void shelf_model_changed(struct shelf *s);
void shelf_replaced(struct shelf *s, const struct conversation *c); // it has been
void shelf_forget(struct shelf *s);                                 // it was not, after all
// Behind so many turns the conversation goes on: what was replaced in later ones is next there.
void shelf_cut(struct shelf *s, size_t turns);

// Whether /undo, or /redo, means what is on the shelf; then the two change places, the conversation
// as it was before turns of it were taken back, if they are all that there was; else these are next
// to redo when it comes back. *session: that
// of what comes back, if it can be had: else *alone says why (another hokku has it, or has changed
// it, which must stay). On failure nothing has changed. Errors: ERR_MEMORY.
bool shelf_can_undo(const struct shelf *s, const struct conversation *c);
bool shelf_can_redo(const struct shelf *s, const struct conversation *c);
bool shelf_undo(struct shelf *s, struct conversation *c, struct session_lock *session,
                struct error *alone, struct error *err);
bool shelf_redo(struct shelf *s, struct conversation *c, struct session_lock *session,
                struct error *alone, struct error *err);

#endif
