#include "hub/wait.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/place.h"

static const double poll_s = 0.1;

void hub_note(const struct hub_options *o, const char *line)
{
    if (o->note)
        o->note(o->user, line);
}

bool hub_cancelled(const struct hub_options *o, struct error *err)
{
    return cancel_asked(o->cancel) && !error_set(err, ERR_INTERRUPTED, "interrupted");
}

bool hub_pause(const struct hub_options *o, double seconds, struct error *err)
{
    for (double end = clock_now() + seconds; clock_now() < end;) {
        if (hub_cancelled(o, err))
            return false;
        const struct timespec t = {.tv_nsec = 50000000};
        nanosleep(&t, NULL);
    }
    return !hub_cancelled(o, err);
}

static void say_waiting(const struct hub_options *o, const char *path, pid_t holder)
{
    char line[400], shown[300], who[32] = "";
    if (holder)
        snprintf(who, sizeof who, ", process %ld,", (long)holder);
    snprintf(line, sizeof line, "waiting for another hokku%s that works on %s", who,
             format_text(shown, sizeof shown, path, strlen(path)));
    hub_note(o, line);
}

int hub_lock(const struct hub_options *o, const char *path, bool *waited, struct error *err)
{
    *waited = false;
    for (;;) {
        struct stat mine, named;
        pid_t holder;
        bool taken = false;
        int fd = place_open(path, O_RDWR | O_CREAT, err);
        if (fd < 0)
            return -1;
        while (!taken) {
            if (!place_try_lock(fd, path, &taken, &holder, err)) {
                close(fd);
                return -1;
            }
            if (taken)
                break;
            if (!*waited)
                say_waiting(o, path, holder);
            *waited = true;
            if (!hub_pause(o, poll_s, err)) {
                close(fd);
                return -1;
            }
        }
        // Who had it may have renamed or removed it: then what is locked means nothing.
        if (fstat(fd, &mine) == 0 && lstat(path, &named) == 0 && mine.st_ino == named.st_ino &&
            mine.st_dev == named.st_dev)
            return fd;
        close(fd);
    }
}
