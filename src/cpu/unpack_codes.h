// As unpack.h, the types whose weights are codes of a few bits: digits, and places in a grid. The
// same integers and scales as quant_decoder's, to the bit.
#ifndef HOKKU_CPU_UNPACK_CODES_H
#define HOKKU_CPU_UNPACK_CODES_H

#include "cpu/grid_codes.h"
#include "cpu/unpack.h"

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
    u->q[0] = w64_widen(b64_of_entries4(cpu_grids.q2_0, (struct places){b->q, 1, 0}));
    u->q[1] = w64_widen(b64_of_entries4(cpu_grids.q2_0, (struct places){b1->q, 1, 0}));
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

// (A loop is not always unrolled, and then registers go through memory.)
#define UNPACK_GRID(type, codes)                                                                   \
    INLINE void unpack_##type(const void *p, struct unit *u)                                       \
    {                                                                                              \
        struct ready r;                                                                            \
        prepare_##type(p, &r);                                                                     \
        u->q[0] = w64_widen(codes(&r, 0));                                                         \
        u->q[1] = w64_widen(codes(&r, 1));                                                         \
        u->q[2] = w64_widen(codes(&r, 2));                                                         \
        u->q[3] = w64_widen(codes(&r, 3));                                                         \
        u->scale = r.scale;                                                                        \
    }
UNPACK_GRID(iq2_xxs, codes_iq2_xxs)
UNPACK_GRID(iq2_xs, codes_iq2_xs)
UNPACK_GRID(iq2_s, codes_iq2_s)
UNPACK_GRID(iq3_xxs, codes_iq3_xxs)
UNPACK_GRID(iq3_s, codes_iq3_s)
UNPACK_GRID(iq1_s, codes_iq1)
UNPACK_GRID(iq1_m, codes_iq1)
#undef UNPACK_GRID

#endif
