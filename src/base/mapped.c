#include "base/mapped.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_FILES = 512, MAX_PATH = 512 }; // one more than that is not guarded

// A handler can only reach static storage. Files are added and removed by one thread.
static struct region {
    const void *volatile at; // NULL: free
    volatile size_t n;
    char path[MAX_PATH];
} regions[MAX_FILES];
static struct region *volatile failed;
static char failed_path[MAX_PATH];
static struct cancel *cancel;

void mapped_add(const void *at, size_t n, const char *path)
{
    size_t length = strlen(path), skip = length < MAX_PATH ? 0 : length - MAX_PATH + 1;
    for (size_t i = 0; i < MAX_FILES; i++) {
        if (regions[i].at)
            continue;
        memcpy(regions[i].path, path + skip, length - skip + 1);
        regions[i].n = n;
        regions[i].at = at;
        return;
    }
}

void mapped_remove(const void *at)
{
    for (size_t i = 0; i < MAX_FILES; i++)
        if (at && regions[i].at == at)
            regions[i].at = NULL;
}

void mapped_watch(struct cancel *c)
{
    cancel = c;
}

bool mapped_fault(const void *address)
{
    uintptr_t a = (uintptr_t)address;
    for (size_t i = 0; i < MAX_FILES; i++) {
        struct region *r = &regions[i];
        uintptr_t begin = (uintptr_t)r->at, page = (uintptr_t)sysconf(_SC_PAGESIZE);
        if (!begin || a < begin || a - begin >= r->n)
            continue;
        // All that follows, too: what was cut has no end.
        uintptr_t from = a / page * page;
        void *zeros = mmap((void *)from, begin + r->n - from, PROT_READ,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (zeros == MAP_FAILED)
            return false;
        if (!failed) {
            memcpy(failed_path, r->path, sizeof failed_path);
            failed = r;
        }
        if (cancel)
            cancel_ask(cancel);
        return true;
    }
    return false;
}

const char *mapped_failed(void)
{
    return failed ? failed_path : NULL;
}

bool mapped_error(bool saved, struct error *err)
{
    return error_set(err, ERR_MODEL,
                     "%s: a part of it can no longer be read: the file was cut while it was in use, "
                     "or its disk fails%s; restore it, and begin again",
                     failed_path, saved ? " (the conversation is saved)" : "");
}
