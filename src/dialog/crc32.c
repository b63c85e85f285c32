#include "dialog/crc32.h"

void crc32_init(struct crc32 *c)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int bit = 0; bit < 8; bit++)
            v = v >> 1 ^ (v & 1 ? 0xEDB88320u : 0);
        c->table[0][i] = v;
    }
    for (int k = 1; k < 8; k++) {
        for (uint32_t i = 0; i < 256; i++)
            c->table[k][i] = c->table[k - 1][i] >> 8 ^ c->table[0][c->table[k - 1][i] & 0xFF];
    }
    c->state = 0xFFFFFFFFu;
}

void crc32_add(struct crc32 *c, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t v = c->state;
    for (; n >= 8; n -= 8, p += 8) {
        v ^= p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        v = c->table[7][v & 0xFF] ^ c->table[6][v >> 8 & 0xFF] ^ c->table[5][v >> 16 & 0xFF] ^
            c->table[4][v >> 24] ^ c->table[3][p[4]] ^ c->table[2][p[5]] ^ c->table[1][p[6]] ^
            c->table[0][p[7]];
    }
    for (; n > 0; n--, p++)
        v = v >> 8 ^ c->table[0][(v ^ *p) & 0xFF];
    c->state = v;
}

uint32_t crc32_take(struct crc32 *c)
{
    uint32_t sum = ~c->state;
    c->state = 0xFFFFFFFFu;
    return sum;
}
