// Keepers, as other calls see them: what they have, and that they are to go.
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "keep/keep.h"
#include "keep/name.h"
#include "keep/wire.h"

enum { MOST = 64 };
static const double PATIENCE_S = 1, DISMISS_S = 10;

// Sends a word to each: connections, at most MOST.
static size_t ask_all(const struct options *o, uint32_t word, int fds[MOST])
{
    struct buf dir = {0}, path = {0};
    bool there;
    size_t n = 0;
    DIR *d = keep_place(o, false, &dir, &there, NULL) && there ? opendir(dir.data) : NULL;
    for (struct dirent *e; d && n < MOST && (e = readdir(d));) {
        if (!keep_is_name(e->d_name))
            continue;
        buf_clear(&path);
        struct keep_message m = {.word = word};
        const int fd =
            buf_printf(&path, "%s%s", dir.data, e->d_name) ? keep_connect(path.data) : -1;
        if (fd < 0 && errno == ECONNREFUSED)
            unlink(path.data); // it was killed
        if (fd >= 0 && keep_send(fd, &m, NULL, 0))
            fds[n++] = fd;
        else if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
    buf_release(&dir);
    buf_release(&path);
    return n;
}

void keep_list(const struct options *o, void (*say)(void *user, const struct keep_said *s),
               void *user)
{
    int fds[MOST];
    const size_t n = ask_all(o, KEEP_STATUS, fds);
    const double until = clock_now() + PATIENCE_S; // for all of them
    for (size_t i = 0; i < n; i++) {
        struct keep_message m;
        if (keep_await(fds[i], until) > 0 && keep_receive(fds[i], &m, NULL, NULL) > 0 &&
            m.word == KEEP_SAYS) {
            const struct keep_said s = {.pid = m.pid,
                                        .busy = m.busy != KEEP_IDLE,
                                        .chats = m.busy == KEEP_CHATS,
                                        .seconds_left = m.seconds,
                                        .n_bytes = m.n_bytes,
                                        .path = m.path,
                                        .device = m.device};
            say(user, &s);
        }
        close(fds[i]);
    }
}

size_t keep_dismiss(const struct options *o, bool busy_too, const struct cancel *cancel,
                    size_t *n_ended)
{
    int fds[MOST];
    const size_t n = ask_all(o, busy_too ? KEEP_LEAVE : KEEP_LEAVE_IF_IDLE, fds);
    const double until = clock_now() + DISMISS_S;
    size_t n_stay = 0;
    *n_ended = 0;
    for (size_t i = 0; i < n; i++) {
        struct keep_message m;
        int k;
        while ((k = keep_await(fds[i], until)) < 0)
            if (cancel_asked(cancel) || clock_now() > until)
                break;
        // The end of its process closes the connection. A word instead: it stays, or is this one,
        // or goes when its chat does.
        const int word = k > 0 ? keep_receive(fds[i], &m, NULL, NULL) : 0;
        *n_ended += word < 0;
        n_stay += word > 0 && !(busy_too && m.busy == KEEP_CHATS);
        close(fds[i]);
    }
    return n - n_stay;
}
