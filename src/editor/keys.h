// Bytes of a terminal become keys: one table says what each key does. Bytes may come one by one
// and as late as they like: nothing depends on time, so ESC waits for what follows (ESC f is Alt-f,
// as in Emacs) and arrow keys survive slow links.
#ifndef HOKKU_EDITOR_KEYS_H
#define HOKKU_EDITOR_KEYS_H

#include "editor/edit.h"

enum verb {
    KEY_NONE, // unknown, or not complete yet
    // with a place (enum where)
    KEY_MOVE,
    KEY_DELETE,
    KEY_KILL,
    // text
    KEY_TYPE,  // key.text
    KEY_PASTE, // keys.pasted: line breaks are \n, always UTF-8
    KEY_NEWLINE,
    KEY_CONTROL_J,
    KEY_YANK,
    KEY_TRANSPOSE,
    KEY_UNDO,
    KEY_COMPLETE,
    // up and down
    KEY_UP,
    KEY_DOWN,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_OLDER,
    KEY_NEWER,
    KEY_SEARCH,
    // the rest
    KEY_ENTER,
    KEY_EDITOR,
    KEY_INTERRUPT,
    KEY_END_OR_DELETE,
    KEY_CANCEL,
    KEY_CLEAR,
    KEY_SUSPEND,
    KEY_QUIT,
    KEY_REPORT, // the terminal says where the cursor is: key.row, key.column, from 1
};

struct key {
    enum verb verb;
    enum where where;
    char text[4]; // one character
    size_t n;
    size_t row, column;
};

struct keys {
    char seq[32]; // of a key whose end has not come
    size_t n;
    bool in_paste, quoted;
    enum { REPORT_NONE, REPORT_MAY_COME, REPORT_IN } report; // of the terminal: ESC ] and a digit
    bool lost;         // there is no memory for what is being pasted
    struct buf pasted; // failed: it did not fit into memory
};

void keys_release(struct keys *k);
// Takes bytes until a key is complete or none is left, and returns how many. Text that is not
// UTF-8, and NUL, becomes U+FFFD, where the person who typed it sees it.
size_t keys_next(struct keys *k, const char *bytes, size_t n, struct key *out);

#endif
