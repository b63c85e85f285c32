#include "base/beside.h"

#include "base/thread.h"

static void *run(void *arg)
{
    struct beside *b = arg;
    b->work(b->user);
    __atomic_store_n(&b->ended, true, __ATOMIC_RELEASE);
    return NULL;
}

void beside_begin(struct beside *b, void (*work)(void *user), void *user)
{
    enum { STACK_BYTES = 8 << 20 }; // what a program's first thread usually has
    *b = (struct beside){.work = work, .user = user};
    b->under_way = thread_start(&b->thread, STACK_BYTES, run, b) == 0;
    if (!b->under_way)
        work(user);
}

bool beside_has_ended(struct beside *b)
{
    if (b->under_way && !__atomic_load_n(&b->ended, __ATOMIC_ACQUIRE))
        return false;
    beside_wait(b);
    return true;
}

void beside_wait(struct beside *b)
{
    if (b->under_way)
        pthread_join(b->thread, NULL);
    b->under_way = false;
}
