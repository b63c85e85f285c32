// The parts of a saved session as bytes: little-endian numbers, a cursor that cannot leave its
// bytes, and the messages of a conversation.
#ifndef HOKKU_DIALOG_SESSION_CODEC_H
#define HOKKU_DIALOG_SESSION_CODEC_H

#include "dialog/conversation.h"

bool codec_put_u32(struct buf *b, uint32_t v);
bool codec_put_u64(struct buf *b, uint64_t v);
bool codec_put_ids(struct buf *b, const int32_t *ids, size_t n);
bool codec_put_message(struct buf *b, const struct message *m);
bool codec_put_messages(struct buf *b, const struct conversation *c); // the live ones

struct codec_cursor {
    const unsigned char *p;
    size_t n;
    bool failed;    // sticky: a value was asked for that is not there, or is impossible
    bool no_memory; // for what was read
};

uint32_t codec_u32(struct codec_cursor *c);
uint64_t codec_u64(struct codec_cursor *c);
const void *codec_bytes(struct codec_cursor *c, size_t n); // NULL when there are fewer
// n ids, each in 0..n_vocab-1, appended to out.
bool codec_ids(struct codec_cursor *c, size_t n, uint32_t n_vocab, struct ids *out);
// Into an empty conversation. False for anything that no conversation can be; messages read so far
// are then in it, to be released.
bool codec_messages(struct codec_cursor *c, struct conversation *conv, uint32_t n_vocab);

enum { SESSION_KV_PIECE = ENGINE_KV_PIECE }; // positions
// Bytes of n positions exported in pieces of SESSION_KV_PIECE; SIZE_MAX when that overflows.
size_t codec_kv_bytes(const struct engine *e, size_t n);

#endif
