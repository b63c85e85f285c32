#include "serve/mhd.h"

#include "base/late.h"

struct mhd mhd;

bool mhd_open(struct error *err)
{
#define FUNCTION(name) "MHD_" #name,
    static const char *const names[] = {MHD_FUNCTIONS(FUNCTION)};
#undef FUNCTION
#define FUNCTION(name) &mhd.name,
    void *const to[] = {MHD_FUNCTIONS(FUNCTION)};
#undef FUNCTION
    return mhd.start_daemon || late_open("libmicrohttpd.so.12", "libmicrohttpd12", names, to,
                                         sizeof to / sizeof *to, err);
}
