// libmicrohttpd, see base/late.h.
#ifndef HOKKU_SERVE_MHD_H
#define HOKKU_SERVE_MHD_H

#include <microhttpd.h>

#include "base/error.h"

#define MHD_FUNCTIONS(F)                                                                           \
    F(add_connection)                                                                              \
    F(add_response_header)                                                                         \
    F(create_response_from_buffer) F(create_response_from_callback) F(destroy_response)            \
        F(get_connection_info) F(get_connection_values) F(get_version) F(http_unescape)            \
            F(lookup_connection_value) F(queue_response) F(resume_connection) F(start_daemon)      \
                F(stop_daemon) F(suspend_connection)

// Its functions, once mhd_open has been called.
extern struct mhd {
#define FUNCTION(name) __typeof__(&MHD_##name) name;
    MHD_FUNCTIONS(FUNCTION)
#undef FUNCTION
} mhd;

bool mhd_open(struct error *err); // ERR_FAIL

#endif
