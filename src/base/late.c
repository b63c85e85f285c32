#include "base/late.h"

#include <dlfcn.h>
#include <string.h>

bool late_open(const char *library, const char *package, const char *const *names, void *const *to,
               size_t n, struct error *err)
{
    void *l = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!l)
        return error_set(err, ERR_FAIL, "%s cannot be opened: %s; apt install %s", library,
                         dlerror(), package);
    for (size_t i = 0; i < n; i++) {
        void *f = dlsym(l, names[i]);
        if (!f)
            return error_set(err, ERR_FAIL, "%s has no function %s: apt install %s of this system",
                             library, names[i], package);
        memcpy(to[i], &f, sizeof f); // ISO C converts no pointer to an object to one to a function
    }
    return true;
}
