// As unpack.h, the types whose weights are codes of a few bits: digits, and places in a grid. The
// same integers and scales as quant_decoder's, to the bit.
#ifndef HOKKU_CPU_UNPACK_CODES_H
#define HOKKU_CPU_UNPACK_CODES_H

#include "cpu/grid_codes.h"
#include "cpu/unpack.h"

// All four parts of 64 weights. A loop is not always unrolled, and then registers go through
// memory.
#define UNPACK_64(u, part, ...)                                                                    \
    do {                                                                                           \
        (u)->q[0] = part(__VA_ARGS__, 0);                                                          \
        (u)->q[1] = part(__VA_ARGS__, 1);                                                          \
        (u)->q[2] = part(__VA_ARGS__, 2);                                                          \
        (u)->q[3] = part(__VA_ARGS__, 3);                                                          \
    } while (0)

// ---- digits

INLINE void unpack_q1_0(const void *p, struct unit *u)
{
    const struct block_q1_0 *b = p;
    for (int i = 0; i < 2; i++) {
        const uint8_t *q = b->q + 8 * i;
        u->q[i] = w64_widen(b64_sub1(b64_bits(load_u32(q), load_u32(q + 4), 2), 1));
    }
    u->scale = v16_set1(load_f16(b->d));
}

INLINE void unpack_q2_0(const void *p, struct unit *u)
{
    const struct block_q2_0 *b = p, *b1 = b + 1;
    float scale[8];
    u->q[0] = w64_widen(b64_of_entries4(cpu_grids.q2_0, bytes_at(b->q)));
    u->q[1] = w64_widen(b64_of_entries4(cpu_grids.q2_0, bytes_at(b1->q)));
    for (int i = 0; i < 8; i++)
        scale[i] = load_f16(b[i / 4].d);
    u->scale = v16_load8(scale);
}

INLINE void unpack_tq1_0(const void *p, struct unit *u)
{
    static const uint8_t powers[4][64] = {
#define FOUR(x)    x, x, x, x
#define SIXTEEN(x) FOUR(x), FOUR(x), FOUR(x), FOUR(x)
        {SIXTEEN(1), SIXTEEN(1), SIXTEEN(3), SIXTEEN(3)},
        {SIXTEEN(9), SIXTEEN(9), SIXTEEN(27), SIXTEEN(27)},
        {SIXTEEN(81), SIXTEEN(81), SIXTEEN(1), SIXTEEN(3)},
        {SIXTEEN(9), SIXTEEN(27), SIXTEEN(81), FOUR(1), FOUR(3), FOUR(9), FOUR(27)},
#undef SIXTEEN
#undef FOUR
    };
    const struct block_tq1_0 *b = p;
    uint8_t of16[32], last[32]; // q16 twice; once more, and q4 four times
    memcpy(of16, b->q16, 16);
    memcpy(of16 + 16, b->q16, 16);
    memcpy(last, b->q16, 16);
    for (int i = 0; i < 4; i++)
        memcpy(last + 16 + 4 * i, b->q4, 4);
    u->q[0] = w64_digits_less1(b64_load2(b->q, b->q), powers[0]);
    u->q[1] = w64_digits_less1(b64_load2(b->q, b->q), powers[1]);
    u->q[2] = w64_digits_less1(b64_load2(b->q, of16), powers[2]);
    u->q[3] = w64_digits_less1(b64_load2(of16, last), powers[3]);
    u->scale = v16_set1(load_f16(b->d));
}

INLINE void unpack_tq2_0(const void *p, struct unit *u)
{
    const struct block_tq2_0 *b = p;
    for (int i = 0; i < 4; i++) {
        const uint8_t *q = b->q + 32 * (i / 2);
        u->q[i] = w64_widen(b64_sub1(b64_fields(q, i % 2 * 4, i % 2 * 4 + 2, 3), 1));
    }
    u->scale = v16_set1(load_f16(b->d));
}

// ---- grids

// eight_signs of four times seven bits.
INLINE uint32_t signs_of_28(uint32_t v)
{
    v = (v & 0x00003fffu) | (v & 0x0fffc000u) << 2;
    v = (v & 0x007f007fu) | (v & 0x3f803f80u) << 1;
    uint32_t parity = v ^ v >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return v | (parity & 0x01010101u) << 7;
}

// Words of four signs of seven bits, and a scale of four above them.
INLINE void split_words(const uint32_t word[8], uint64_t signs[4], uint64_t *scales)
{
    uint32_t s[8];
    uint8_t scale[8];
    for (int i = 0; i < 8; i++) {
        s[i] = signs_of_28(word[i]);
        scale[i] = (uint8_t)(word[i] >> 28);
    }
    memcpy(signs, s, sizeof s);
    memcpy(scales, scale, sizeof scale);
}

INLINE w64 iq2_xxs_64(const uint8_t places[32], const uint64_t signs[4], int i)
{
    const b64 v = b64_of_entries8(cpu_grids.iq2_xxs, bytes_at(places + 8 * i));
    return w64_widen(b64_negative(v, signs[i]));
}

INLINE void unpack_iq2_xxs(const void *p, struct unit *u)
{
    const struct block_iq2_xxs *b = p;
    uint32_t word[8];
    uint64_t signs[4], scales;
    uint8_t places[32];
    for (int i = 0; i < 8; i++) {
        memcpy(places + 4 * i, b->q + 8 * i, 4);
        word[i] = load_u32(b->q + 8 * i + 4);
    }
    split_words(word, signs, &scales);
    UNPACK_64(u, iq2_xxs_64, places, signs);
    u->scale = scale_half(b->d, v16_u8x8_dup(scales), 0.25f);
}

INLINE w64 iq2_xs_64(const struct block_iq2_xs *b, const uint8_t signs[32], int i)
{
    const b64 v = b64_of_entries8(cpu_grids.iq2_xs, words_at(b->q + 16 * i, 511));
    return w64_widen(b64_negative(v, load_u64(signs + 8 * i)));
}

INLINE void unpack_iq2_xs(const void *p, struct unit *u)
{
    const struct block_iq2_xs *b = p;
    uint8_t signs[32];
    for (int i = 0; i < 32; i++) {
        const uint8_t seven = b->q[2 * i + 1] >> 1, four = seven ^ seven >> 4,
                      two = four ^ four >> 2;
        signs[i] = (uint8_t)(seven | (two ^ two >> 1) << 7);
    }
    UNPACK_64(u, iq2_xs_64, b, signs);
    u->scale = scale_half(b->d, v16_nibbles(b->scales), 0.25f);
}

INLINE w64 iq3_xxs_64(const struct block_iq3_xxs *b, const uint64_t signs[4], int i)
{
    const b64 v = b64_of_entries4(cpu_grids.iq3_xxs, bytes_at(b->q + 16 * i));
    return w64_widen(b64_negative(v, signs[i]));
}

INLINE void unpack_iq3_xxs(const void *p, struct unit *u)
{
    const struct block_iq3_xxs *b = p;
    uint32_t word[8];
    uint64_t signs[4], scales;
    memcpy(word, b->signs, sizeof word);
    split_words(word, signs, &scales);
    UNPACK_64(u, iq3_xxs_64, b, signs);
    u->scale = scale_half(b->d, v16_u8x8_dup(scales), 0.5f);
}

#define UNPACK_READY(type, codes)                                                                  \
    INLINE w64 type##_64(const struct ready *r, int i)                                             \
    {                                                                                              \
        return w64_widen(codes(r, i));                                                             \
    }                                                                                              \
    INLINE void unpack_##type(const void *p, struct unit *u)                                       \
    {                                                                                              \
        struct ready r;                                                                            \
        prepare_##type(p, &r);                                                                     \
        UNPACK_64(u, type##_64, &r);                                                               \
        u->scale = r.scale;                                                                        \
    }
UNPACK_READY(iq2_s, codes_iq2_s)
UNPACK_READY(iq3_s, codes_iq3_s)
UNPACK_READY(iq1_s, codes_iq1)
UNPACK_READY(iq1_m, codes_iq1)
#undef UNPACK_READY

#endif
