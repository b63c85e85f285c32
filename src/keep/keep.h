// --keep: a process of the user that keeps a model in memory and does later calls (docs/keep.md). A
// call hands it its streams, words, directory and environment; what runs there is the program's
// usual way, so that the bytes are those of a call that runs by itself.
#ifndef HOKKU_KEEP_KEEP_H
#define HOKKU_KEEP_KEEP_H

#include <sys/stat.h>

#include "base/buf.h"
#include "cli/kept.h"

enum keep_outcome {
    KEEP_ALONE,    // the call is to run in this process
    KEEP_ANSWERED, // it has run in another one
    KEEP_KEEPER,   // this is a new process, which is to be the keeper
};

struct keep_result {
    int code, death; // exit code; the signal that ended it, 0: none
};

struct keeper_place { // of a new keeper; released by keeper_run
    int fd;           // that it listens at
    struct stat id;   // of the socket's file
    struct buf socket, model;
};

// Has a kept model do the call that p's options describe, if they ask for it. Why it runs by itself
// nevertheless is said with -v.
enum keep_outcome keep_call(const struct program *p, int argc, char **argv, char **envp,
                            struct keep_result *r, struct keeper_place *place);

// One call, from its words to its exit code, as main has it.
typedef int keeper_call(void *user, int argc, char **argv, char **envp, struct kept *kept,
                        double began, int *death);
// Keeps, and does calls, until nobody has come for a while or it is asked to end. argv: of the call
// that began it, made unreadable for those who list processes.
void keeper_run(struct keeper_place *place, int argc, char **argv, keeper_call *call, void *user);

// Of a keeper, as it says.
struct keep_said {
    int pid;
    bool busy, chats;    // with a call; which is a chat
    double seconds_left; // when nobody comes (any more)
    uint64_t n_bytes;    // that the engine has; 0: not known before its first call has ended
    const char *path, *device;
};
// Asks each keeper of the user.
void keep_list(const struct options *o, void (*say)(void *user, const struct keep_said *s),
               void *user);
// Asks them to end, and waits for it for some seconds; those who answer somebody (busy_too) end
// behind that, and a chat is not waited for. How many are asked, and how many have ended. Nobody
// asks itself.
size_t keep_dismiss(const struct options *o, bool busy_too, const struct cancel *cancel,
                    size_t *n_ended);

#endif
