// libFuzzer target: the messages of a session file, untrusted. What is accepted must be what no
// checksum can promise: a conversation whose parts hang together, and it must come out as it went
// in.
#include <stdlib.h>
#include <string.h>

#include "chat/session_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct message *m)
{
    if (m->thinking_end > m->text.len || m->thinking_at > m->thinking_end ||
        m->answer_at > m->text.len || m->n_prefill > m->ids.len ||
        (m->has_end_token && m->ids.len == 0))
        abort();
    for (size_t i = 0; i < m->ids.len; i++) {
        if (m->ids.data[i] < 0 || m->ids.data[i] >= 1000)
            abort();
    }
    for (size_t i = 0; i < m->n_runs; i++) {
        if (m->runs[i].first_id >= m->ids.len ||
            (i > 0 && m->runs[i].first_id <= m->runs[i - 1].first_id))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conversation c = {0};
    struct codec_cursor cur = {.p = data, .n = size};
    if (codec_messages(&cur, &c, 1000)) {
        struct buf again = {0};
        for (size_t i = 0; i < c.n_messages; i++)
            check(&c.messages[i]);
        if (!codec_put_messages(&again, &c) || again.len != size ||
            memcmp(again.data, data, size) != 0)
            abort();
        buf_release(&again);
    }
    conversation_release(&c);
    return 0;
}
