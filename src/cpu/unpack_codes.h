// As unpack.h, the types whose weights are codes of a few bits: digits, and places in a grid. The
// same integers and scales as quant_decoder's, to the bit.
#ifndef HOKKU_CPU_UNPACK_CODES_H
#define HOKKU_CPU_UNPACK_CODES_H

#include "cpu/grids.h"
#include "cpu/unpack.h"

INLINE struct places bytes_at(const uint8_t *low)
{
    return (struct places){low, 1, 0};
}

INLINE struct places words_at(const void *at, uint16_t mask)
{
    return (struct places){at, 2, mask};
}

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

// d (1/2 + s) unit
INLINE v16 scale_half(const uint8_t d[2], v16 s, float unit)
{
    return v16_mul(v16_mul(v16_set1(load_f16(d)), v16_add(v16_set1(0.5f), s)), v16_set1(unit));
}

// d (2 s + 1) unit
INLINE v16 scale_odd(const void *d, v16 s, float unit)
{
    const v16 odd = v16_fma(s, v16_set1(2.0f), v16_set1(1.0f));
    return v16_mul(v16_mul(v16_set1(load_f16(d)), odd), v16_set1(unit));
}

INLINE v16 v16_nibbles(const uint8_t q[8])
{
    return v16_u8(spread_bits(load_u32(q), 4), spread_bits(load_u32(q + 4), 4));
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

// Two bits each, four in a byte.
#define BYTE(i) i, 0x80, i, 0x80, i, 0x80, i, 0x80
#define TIMES   256, 64, 16, 4
static const struct high_bits high_2 = {
    {BYTE(0), BYTE(1), BYTE(2), BYTE(3), BYTE(4), BYTE(5), BYTE(6), BYTE(7)},
    {TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES},
    0x300};
#undef TIMES

INLINE w64 iq2_s_64(const struct block_iq2_s *b, const uint16_t places[32], int i)
{
    const b64 v = b64_of_entries8(cpu_grids.iq2_s, words_at(places + 8 * i, 0xffff));
    return w64_widen(b64_negative(v, load_u64(b->signs + 8 * i)));
}

INLINE void unpack_iq2_s(const void *p, struct unit *u)
{
    const struct block_iq2_s *b = p;
    uint16_t places[32];
    store_places(places, b->q, load_u64(b->high), 0, &high_2);
    UNPACK_64(u, iq2_s_64, b, places);
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

// One bit each.
#define TIMES 256, 128, 64, 32, 16, 8, 4, 2
static const struct high_bits high_1 = {
    {BYTE(0), BYTE(0), BYTE(1), BYTE(1), BYTE(2), BYTE(2), BYTE(3), BYTE(3)},
    {TIMES, TIMES, TIMES, TIMES},
    0x100};
#undef TIMES
#undef BYTE

INLINE w64 iq3_s_64(const struct block_iq3_s *b, const uint16_t places[64], int i)
{
    const b64 v = b64_of_entries4(cpu_grids.iq3_s, words_at(places + 16 * i, 0xffff));
    return w64_widen(b64_negative(v, load_u64(b->signs + 8 * i)));
}

INLINE void unpack_iq3_s(const void *p, struct unit *u)
{
    const struct block_iq3_s *b = p;
    uint16_t places[64];
    store_places(places, b->q, load_u32(b->high), 0, &high_1);
    store_places(places + 32, b->q + 32, load_u32(b->high + 4), 0, &high_1);
    UNPACK_64(u, iq3_s_64, b, places);
    u->scale = scale_odd(b->d, v16_u8x8_dup(spread_bits(load_u32(b->scales), 4)), 1.0f);
}

// Eight times the weights: -8, 0, 8, and 1 more, or less where a bit is set.
INLINE w64 iq1_weights(struct places at, uint64_t less)
{
    const b64 two = b64_bits((uint32_t)less, (uint32_t)(less >> 32), 2);
    return w64_widen(b64_sub(b64_of_entries8(cpu_grids.iq1, at), two));
}

// Three bits each, four in a word.
#define WORD(i) i, 0x80, i, 0x80, i, i + 1, i + 1, 0x80
#define TIMES   256, 32, 4, 128
static const struct high_bits high_3 = {
    {WORD(0), WORD(2), WORD(4), WORD(6), WORD(8), WORD(10), WORD(12), WORD(14)},
    {TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES},
    0x700};
#undef WORD
#undef TIMES

// Three bits each, two in a byte.
#define BYTES(i) i, 0x80, i, 0x80, i + 1, 0x80, i + 1, 0x80
#define TIMES    256, 16, 256, 16
static const struct high_bits high_4 = {
    {BYTES(0), BYTES(2), BYTES(4), BYTES(6), BYTES(8), BYTES(10), BYTES(12), BYTES(14)},
    {TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES},
    0x700};
#undef BYTES
#undef TIMES

// The lowest three bits of four words of 16 bits, and of four more, to bytes.
INLINE uint64_t bytes_of_words(uint64_t a, uint64_t b)
{
    const uint64_t three = 0x0007000700070007u, two = 0x0000ffff0000ffffu;
    a = ((a & three) | (a & three) >> 8) & two;
    b = ((b & three) | (b & three) >> 8) & two;
    return ((a | a >> 16) & UINT32_MAX) | (b | b >> 16) << 32;
}

INLINE w64 iq1_s_64(const struct block_iq1_s *b, const uint16_t places[32], int i)
{
    const uint32_t high = load_u32(b->high + 4 * i);
    const uint64_t less = (high >> 15 & 1) | (uint64_t)(high >> 31) << 32;
    return iq1_weights(words_at(places + 8 * i, 0xffff), less * UINT32_MAX);
}

INLINE void unpack_iq1_s(const void *p, struct unit *u)
{
    const struct block_iq1_s *b = p;
    const uint64_t low = load_u64(b->high), high = load_u64(b->high + 8);
    uint16_t places[32];
    store_places(places, b->q, load_u64(b->high), load_u64(b->high + 8), &high_3);
    UNPACK_64(u, iq1_s_64, b, places);
    u->scale = scale_odd(b->d, v16_u8x8_dup(bytes_of_words(low >> 12, high >> 12)), 0.125f);
}

INLINE w64 iq1_m_64(const struct block_iq1_m *b, const uint16_t places[32], int i)
{
    const uint32_t less = load_u32(b->high + 4 * i) >> 3 & 0x11111111u;
    return iq1_weights(words_at(places + 8 * i, 0xffff), spread_bits(less, 4) * 255);
}

// Twice four fields of three bits, in words of 16, to bytes.
INLINE uint64_t spread_threes(uint64_t v)
{
    v = (v & 0x0fffu) | (v & 0x0fff0000u) << 16;
    v = (v & 0x0000003f0000003fu) | (v & 0x00000fc000000fc0u) << 10;
    return (v & 0x0007000700070007u) | (v & 0x0038003800380038u) << 5;
}

INLINE void unpack_iq1_m(const void *p, struct unit *u)
{
    const struct block_iq1_m *b = p;
    const uint16_t d = (uint16_t)iq1_m_d(b);
    const uint64_t low = spread_threes(load_u32(b->scales));
    const uint64_t high = spread_threes(load_u32(b->scales + 4));
    uint16_t places[32];
    store_places(places, b->q, load_u64(b->high), load_u64(b->high + 8), &high_4);
    UNPACK_64(u, iq1_m_64, b, places);
    u->scale = scale_odd(&d, v16_u8(low, high), 0.125f);
}

#endif
