// Products of one token with AVX-512 VNNI. As in decode_avx2.c weights stay bytes, which meet an
// upper and a lower byte of the activations; here vpdpbusd multiplies 64 of them and adds fours, in
// 32 bits. A lane is a group of 16 weights, of a register's 16 in their order: weights are permuted
// so, four bytes at a time, before their bits are taken apart.
//
// Sums are exact, and what follows is done with floats in the order of matmul.c: the bits are the
// same.
#include "cpu/decode.h"

#include "cpu/put.h"
#include "cpu/scales.h"

typedef __m512i lanes; // sixteen, of four bytes or of one number

// Activations of 256 columns as weights meet them.
struct split {
    lanes high[4], low[4]; // fours of the groups' columns
    lanes less;            // what sums are too large by
};

// 256 weights of 16 groups.
struct codes {
    lanes w[4]; // unsigned: fours of the groups' columns
    __m512 scale, min;
};

// Unpacks 256 weights at p; q not NULL: 128 at p and 128 at q.
typedef void unpack_fn(const uint8_t *p, const uint8_t *q, struct codes *c);

struct kind {
    unpack_fn *unpack;
    size_t bytes; // of 256 weights
    int offset;   // what codes are too large by
    bool wide;    // codes of eight bits: less 128 they are the weights, signed
    bool has_min;
    bool halves; // 128 weights have half of the bytes
};

INLINE lanes load64(const void *p)
{
    return _mm512_loadu_si512(p);
}

// F(g) of every lane g.
#define EVERY(F)                                                                                   \
    _mm512_setr_epi32(F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7), F(8), F(9), F(10), F(11),    \
                      F(12), F(13), F(14), F(15))

INLINE lanes and8(lanes v, int bits)
{
    return _mm512_and_si512(v, _mm512_set1_epi8((char)bits));
}

// v, and those bits of u.
INLINE lanes or8(lanes v, lanes u, int bits)
{
    return _mm512_ternarylogic_epi32(v, u, _mm512_set1_epi8((char)bits), 0xf8);
}

// Sixteen unsigned bytes as numbers.
INLINE __m512 numbers(__m128i v)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v));
}

// Codes that stand for levels, more by so much.
INLINE void look_up(const int8_t levels[16], int more, struct codes *c)
{
    const __m128i table =
        _mm_add_epi8(_mm_loadu_si128((const __m128i *)levels), _mm_set1_epi8((char)more));
    for (int j = 0; j < 4; j++)
        c->w[j] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), c->w[j]);
}

// ---- blocks of 256

// Where a group's 16 bytes begin, by fours, and the bit where its codes do.
#define PAIR(g)       ((g) / 4 * 8 + (g) % 2 * 4)
#define PAIR_BIT(g)   ((g) / 2 % 2 * 4)
#define BLOCK(g)      ((g) / 2 * 4)
#define BLOCK_BIT(g)  ((g) % 2 * 4)
#define FOURTH(g)     ((g) / 8 * 16 + (g) % 4 * 4)
#define FOURTH_BIT(g) ((g) / 4 % 2 * 4)
#define FIELD(g)      ((g) / 8 * 8 + (g) % 2 * 4)
#define FIELD_BIT(g)  ((g) % 8 / 2 * 2)
#define BIT(g)        ((g) % 2 * 4)
// How far left to turn a group's bit to be the fifth or the third, its two to be the fifth and the
// sixth.
#define BIT_TO_FIFTH(g)   ((4 - (g) / 2) & 31)
#define BIT_TO_THIRD(g)   ((2 - (g) / 2) & 31)
#define FIELD_TO_FIFTH(g) ((4 - (g) % 8 / 2 * 2) & 31)

INLINE lanes next(lanes at, int j)
{
    return _mm512_add_epi32(at, _mm512_set1_epi32(j));
}

// Of 128 bytes, what `at` says.
INLINE lanes of_two(lanes a, lanes at, lanes b)
{
    return _mm512_permutex2var_epi32(a, at, b);
}

// The eight scales and minima of Q4_K and Q5_K.
INLINE void pair_scales(const uint8_t d[2], const uint8_t dmin[2], const uint8_t scales[12],
                        struct codes *c)
{
    const struct sixteen_bytes s = k_scales(scales);
    const __m128i v = _mm_set_epi64x((long long)s.second, (long long)s.first);
    c->scale = _mm512_mul_ps(_mm512_set1_ps(load_f16(d)), numbers(_mm_unpacklo_epi8(v, v)));
    c->min = _mm512_mul_ps(_mm512_set1_ps(-load_f16(dmin)), numbers(_mm_unpackhi_epi8(v, v)));
}

INLINE void unpack_q4_k(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct block_q4_k *b = (const struct block_q4_k *)p;
    (void)q;
    const lanes q0 = load64(b->q), q1 = load64(b->q + 64);
    for (int j = 0; j < 4; j++) {
        const lanes v = of_two(q0, next(EVERY(PAIR), j), q1);
        c->w[j] = and8(_mm512_srlv_epi32(v, EVERY(PAIR_BIT)), 15);
    }
    pair_scales(b->d, b->dmin, b->scales, c);
}

INLINE void unpack_q5_k(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct block_q5_k *b = (const struct block_q5_k *)p;
    (void)q;
    const lanes q0 = load64(b->q), q1 = load64(b->q + 64), high = load64(b->high);
    for (int j = 0; j < 4; j++) {
        const lanes v = of_two(q0, next(EVERY(PAIR), j), q1);
        const lanes t = _mm512_permutexvar_epi32(next(EVERY(BIT), j), high);
        c->w[j] = or8(and8(_mm512_srlv_epi32(v, EVERY(PAIR_BIT)), 15),
                      _mm512_rolv_epi32(t, EVERY(BIT_TO_FIFTH)), 16);
    }
    pair_scales(b->d, b->dmin, b->scales, c);
}

INLINE void unpack_q6_k(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct block_q6_k *b = (const struct block_q6_k *)p;
    (void)q;
    const lanes q0 = load64(b->low), q1 = load64(b->low + 64), high = load64(b->high);
    for (int j = 0; j < 4; j++) {
        const lanes v = of_two(q0, next(EVERY(FOURTH), j), q1);
        const lanes t = _mm512_permutexvar_epi32(next(EVERY(FIELD), j), high);
        c->w[j] = or8(and8(_mm512_srlv_epi32(v, EVERY(FOURTH_BIT)), 15),
                      _mm512_rolv_epi32(t, EVERY(FIELD_TO_FIFTH)), 0x30);
    }
    const __m128i s = _mm_loadu_si128((const __m128i *)b->scales);
    c->scale =
        _mm512_mul_ps(_mm512_set1_ps(load_f16(b->d)), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(s)));
}

INLINE void unpack_q2_k(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct block_q2_k *b = (const struct block_q2_k *)p;
    (void)q;
    const lanes all = load64(b->q);
    for (int j = 0; j < 4; j++) {
        const lanes v = _mm512_permutexvar_epi32(next(EVERY(FIELD), j), all);
        c->w[j] = and8(_mm512_srlv_epi32(v, EVERY(FIELD_BIT)), 3);
    }
    const lanes s = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)b->scales));
    const lanes low = _mm512_and_si512(s, _mm512_set1_epi32(15)), high = _mm512_srli_epi32(s, 4);
    c->scale = _mm512_mul_ps(_mm512_set1_ps(load_f16(b->d)), _mm512_cvtepi32_ps(low));
    c->min = _mm512_mul_ps(_mm512_set1_ps(-load_f16(b->dmin)), _mm512_cvtepi32_ps(high));
}

INLINE void unpack_q3_k(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct block_q3_k *b = (const struct block_q3_k *)p;
    (void)q;
    const lanes all = load64(b->q), third = load64(b->high);
    for (int j = 0; j < 4; j++) {
        const lanes v = _mm512_permutexvar_epi32(next(EVERY(FIELD), j), all);
        const lanes t = _mm512_permutexvar_epi32(next(EVERY(BIT), j), third);
        c->w[j] = or8(and8(_mm512_srlv_epi32(v, EVERY(FIELD_BIT)), 3),
                      _mm512_rolv_epi32(t, EVERY(BIT_TO_THIRD)), 4);
    }
    const struct sixteen_bytes s = q3_k_scales(b->scales);
    const __m512 scales = numbers(_mm_set_epi64x((long long)s.second, (long long)s.first));
    c->scale =
        _mm512_mul_ps(_mm512_set1_ps(load_f16(b->d)), _mm512_sub_ps(scales, _mm512_set1_ps(32.0f)));
}

INLINE void unpack_iq4_xs(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct block_iq4_xs *b = (const struct block_iq4_xs *)p;
    (void)q;
    const lanes q0 = load64(b->q), q1 = load64(b->q + 64);
    for (int j = 0; j < 4; j++) {
        const lanes v = of_two(q0, next(EVERY(BLOCK), j), q1);
        c->w[j] = and8(_mm512_srlv_epi32(v, EVERY(BLOCK_BIT)), 15);
    }
    look_up(iq4_values, 128, c);
    const __m128i s = _mm_cvtsi64_si128((long long)iq4_xs_scales(b));
    c->scale =
        _mm512_mul_ps(_mm512_set1_ps(load_f16(b->d)),
                      _mm512_sub_ps(numbers(_mm_unpacklo_epi8(s, s)), _mm512_set1_ps(32.0f)));
}

// ---- blocks of 32: eight, of two groups each

// The bytes of eight blocks, in three overlapping parts of 64.
struct eight {
    lanes a, b, c;
    int size, last; // of a block; where c begins; in words of 16 bits
};

INLINE struct eight load_eight(const uint8_t *p, const uint8_t *q, size_t size)
{
    struct eight e = {.a = load64(p), .size = (int)size / 2, .last = (int)size * 4 - 32};
    if (!q) {
        e.b = load64(p + 64);
        e.c = load64(p + 8 * size - 64);
    } else { // the half at p has 64 bytes and some more
        const __mmask64 more = (UINT64_C(1) << (4 * size - 64)) - 1;
        e.b = _mm512_mask_loadu_epi8(_mm512_maskz_loadu_epi8(more, p + 64), ~more,
                                     q - (4 * size - 64));
        e.c = load64(q + 4 * size - 64);
    }
    return e;
}

// The words that `at` says.
INLINE lanes words(const struct eight *e, lanes at)
{
    const lanes v = _mm512_permutex2var_epi16(e->a, at, e->b);
    const __mmask32 later = _mm512_cmpge_epu16_mask(at, _mm512_set1_epi16(64));
    const lanes in_c = _mm512_sub_epi16(at, _mm512_set1_epi16((short)e->last));
    return _mm512_mask_permutexvar_epi16(v, later, in_c, e->c);
}

// Two words of a lane's block, from its first-th on.
INLINE lanes two_words(const struct eight *e, int first)
{
#define TWO(g) ((g) / 2 * e->size + first) * 0x10001 + 0x10000
    return words(e, EVERY(TWO));
#undef TWO
}

INLINE void unpack_nibbles(const struct eight *e, int first, struct codes *c)
{
    for (int j = 0; j < 4; j++) {
        const lanes v = two_words(e, first + 2 * j);
        c->w[j] = and8(_mm512_srlv_epi32(v, EVERY(BLOCK_BIT)), 15);
    }
}

// The fifth bits, of which a block's begin with its first-th word.
INLINE void add_fifths(const struct eight *e, int first, struct codes *c)
{
#define HALF(g) ((g) / 2 * e->size + first + (g) % 2) * 0x10001
#define BYTE(g) ((g) % 4 * 0x04040404)
    const lanes bits = words(e, EVERY(HALF)), sixteen = _mm512_set1_epi8(16);
    for (int j = 0; j < 4; j++) {
        const lanes byte = _mm512_add_epi8(EVERY(BYTE), _mm512_set1_epi8((char)(j / 2)));
        const lanes bit = _mm512_set1_epi32((int)(0x08040201u << j % 2 * 4));
        const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits, byte), bit);
        c->w[j] = _mm512_mask_add_epi8(c->w[j], set, c->w[j], sixteen);
    }
#undef HALF
#undef BYTE
}

// Each block's scale, for both of its groups, and with has_min its minimum, the next word.
INLINE void half_floats(const struct eight *e, bool has_min, struct codes *c)
{
#define WORD(g) ((g) % 8 * e->size + (g) / 8) * 0x10001
    const lanes v = words(e, EVERY(WORD));
#undef WORD
    c->scale = _mm512_cvtph_ps(_mm512_castsi512_si256(v));
    if (has_min)
        c->min = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1));
}

INLINE void unpack_q4_0(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_q4_0));
    unpack_nibbles(&e, offsetof(struct block_q4_0, q) / 2, c);
    half_floats(&e, false, c);
}

INLINE void unpack_q4_1(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_q4_1));
    unpack_nibbles(&e, offsetof(struct block_q4_1, q) / 2, c);
    half_floats(&e, true, c);
}

INLINE void unpack_q5_0(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_q5_0));
    unpack_nibbles(&e, offsetof(struct block_q5_0, q) / 2, c);
    add_fifths(&e, offsetof(struct block_q5_0, high) / 2, c);
    half_floats(&e, false, c);
}

INLINE void unpack_q5_1(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_q5_1));
    unpack_nibbles(&e, offsetof(struct block_q5_1, q) / 2, c);
    add_fifths(&e, offsetof(struct block_q5_1, high) / 2, c);
    half_floats(&e, true, c);
}

INLINE void unpack_iq4_nl(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_iq4_nl));
    unpack_nibbles(&e, offsetof(struct block_iq4_nl, q) / 2, c);
    look_up(iq4_values, 128, c);
    half_floats(&e, false, c);
}

// NVFP4: four blocks of 64, as long as eight of 32. A group is 8 bytes, first low nibbles.
INLINE void unpack_nvfp4(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    enum { SIZE = sizeof(struct block_nvfp4) };
    const struct eight e = load_eight(p, q, SIZE / 2);
    for (int j = 0; j < 2; j++) {
#define GROUP(g) ((g) / 4 * (SIZE / 2) + 2 + (g) % 4 * 4 + 2 * j) * 0x10001 + 0x10000
        const lanes v = words(&e, EVERY(GROUP));
#undef GROUP
        c->w[j] = and8(v, 15);
        c->w[2 + j] = and8(_mm512_srli_epi32(v, 4), 15);
    }
    look_up(e2m1_values, 12, c);
    const uint8_t *r = q ? q : p + 2 * SIZE;
    const __m256i none = _mm256_set1_epi16(0x7f);
    const __m256i s = _mm256_cvtepu8_epi16(_mm_setr_epi32(
        (int)load_u32(p), (int)load_u32(p + SIZE), (int)load_u32(r), (int)load_u32(r + SIZE)));
    const __mmask16 some = _mm256_cmpneq_epi16_mask(s, none);
    // As half floats, with the same bits of mantissa and 8 more as bias.
    c->scale =
        _mm512_mul_ps(_mm512_cvtph_ps(_mm256_maskz_slli_epi16(some, _mm256_and_si256(s, none), 7)),
                      _mm512_set1_ps(128.0f));
}

// As mxfp4_scale_bits.
INLINE __m512 mxfp4_scales(lanes e)
{
    const __mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    const lanes bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    return _mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(bits, small, _mm512_set1_epi32(0x00200000), e));
}

// MXFP4: blocks of 17 bytes, whose nibbles begin at odd places and at even ones.
INLINE void unpack_mxfp4(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    enum { SIZE = sizeof(struct block_mxfp4) };
    const uint8_t *r = q ? q : p + 4 * SIZE;
    const lanes a0 = load64(p + 1), a1 = load64(r + 1);                         // even blocks
    const lanes b0 = load64(p + 4 * SIZE - 64), b1 = load64(r + 4 * SIZE - 64); // odd ones
    for (int j = 0; j < 4; j++) {
#define EVEN(g) ((g) / 8 * 32 + (g) / 4 % 2 * SIZE + 2 * j) * 0x10001 + 0x10000
#define ODD(g)                                                                                     \
    ((g) / 8 * 32 + ((g) / 4 % 2 * 2 + 1) * SIZE / 2 + 1 + 2 * j - (4 * SIZE - 64) / 2) *          \
            0x10001 +                                                                              \
        0x10000
        const lanes even = _mm512_permutex2var_epi16(a0, EVERY(EVEN), a1);
        const lanes odd = _mm512_permutex2var_epi16(b0, EVERY(ODD), b1);
#undef EVEN
#undef ODD
        const lanes v = _mm512_mask_mov_epi32(even, 0xcccc, odd);
        c->w[j] = and8(_mm512_srlv_epi32(v, EVERY(BLOCK_BIT)), 15);
    }
    look_up(e2m1_values, 12, c);
    const __m128i v = _mm_cvtsi64_si128((long long)mxfp4_exponents(p, r));
    c->scale = mxfp4_scales(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(v, v)));
}

// ---- products

INLINE lanes dot(const lanes a[4], const lanes b[4])
{
    lanes sum = _mm512_setzero_si512();
    for (int j = 0; j < 4; j++)
        sum = _mm512_dpbusd_epi32(sum, a[j], b[j]);
    return sum;
}

INLINE lanes dot_split(const lanes w[4], const struct split *x, bool wide)
{
    lanes s[4]; // signed
    for (int j = 0; j < 4; j++)
        s[j] = wide ? _mm512_xor_si512(w[j], _mm512_set1_epi8((char)128)) : w[j];
    return _mm512_add_epi32(_mm512_slli_epi32(dot(w, x->high), 8), dot(x->low, s));
}

// Fours of 16 groups, which come one after the other.
INLINE void by_fours(const lanes v[4], lanes to[4])
{
#define COLUMN(g) ((g) % 8 * 4)
    for (int j = 0; j < 4; j++) {
        const lanes at = next(EVERY(COLUMN), j);
        const lanes a = of_two(v[0], at, v[1]), b = of_two(v[2], at, v[3]);
        to[j] = _mm512_inserti64x4(a, _mm512_castsi512_si256(b), 1);
    }
#undef COLUMN
}

INLINE void split_block(const struct kind *kind, const int16_t *q, struct split *s)
{
    const lanes upper = _mm512_set1_epi16((short)0xff00), lower = _mm512_set1_epi16(255);
    lanes high[4], low[4], ones[4];
    for (int i = 0; i < 4; i++) {
        const lanes even = load64(q + 64 * i), odd = load64(q + 64 * i + 32);
        high[i] = _mm512_or_si512(_mm512_srli_epi16(even, 8), _mm512_and_si512(odd, upper));
        low[i] = _mm512_or_si512(_mm512_and_si512(even, lower), _mm512_slli_epi16(odd, 8));
        ones[i] = _mm512_set1_epi8(1);
    }
    by_fours(high, s->high);
    by_fours(low, s->low);
    const lanes h = _mm512_slli_epi32(dot(ones, s->high), 8), l = dot(s->low, ones);
    s->less = kind->wide
                  ? _mm512_slli_epi32(h, 7)
                  : _mm512_mullo_epi32(_mm512_add_epi32(h, l), _mm512_set1_epi32(kind->offset));
}

// Of 128 columns, for two rows.
INLINE void repeat_half(struct split *s)
{
    for (int j = 0; j < 4; j++) {
        s->high[j] = _mm512_shuffle_i64x2(s->high[j], s->high[j], 0x44);
        s->low[j] = _mm512_shuffle_i64x2(s->low[j], s->low[j], 0x44);
    }
    s->less = _mm512_shuffle_i64x2(s->less, s->less, 0x44);
}

// One token's activations for all rows.
struct token {
    struct split x[DECODE_MOST_BLOCKS];
    const float *scale, *sum; // cpu_act's
    size_t n_blocks;
};

// Adds a block's products to a row's lanes.
INLINE __m512 added(const struct kind *kind, const struct codes *c, const struct token *t, size_t b,
                    __m512 y, __m512 acc)
{
    acc = _mm512_fmadd_ps(y, _mm512_set1_ps(t->scale[b]), acc);
    return kind->has_min ? _mm512_fmadd_ps(c->min, _mm512_loadu_ps(t->sum + 16 * b), acc) : acc;
}

// A block's sums by groups, and its codes' scales and minima.
INLINE __m512 scaled(const struct kind *kind, const uint8_t *p, const uint8_t *q,
                     const struct split *x, struct codes *c)
{
    kind->unpack(p, q, c);
    lanes sum = dot_split(c->w, x, kind->wide);
    if (kind->offset > 0 || kind->wide)
        sum = _mm512_sub_epi32(sum, x->less);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(sum), c->scale);
}

// The whole blocks of a row; returns their end.
INLINE const uint8_t *add_blocks(const struct kind *kind, const struct token *t, const uint8_t *p,
                                 __m512 *acc)
{
    __m512 sum = _mm512_setzero_ps();
    for (size_t b = 0; b < t->n_blocks; b++, p += kind->bytes) {
        struct codes c;
        fetch(p + AHEAD, kind->bytes);
        const __m512 y = scaled(kind, p, NULL, &t->x[b], &c);
        sum = added(kind, &c, t, b, y, sum);
    }
    *acc = sum;
    return p;
}

// The eighth lane and those after it first, then nothing.
INLINE __m512 later_half(__m512 v)
{
    return _mm512_maskz_shuffle_f32x4(0x00ff, v, v, 0x0e);
}

// 128 columns behind the whole blocks, of two rows at once.
INLINE void add_halves(const struct kind *kind, const struct token *t, const uint8_t *p,
                       const uint8_t *q, __m512 acc[2])
{
    const size_t half = kind->bytes / 2, b = t->n_blocks;
    struct codes c;
    fetch(p + AHEAD, half);
    fetch(q + AHEAD, half);
    const __m512 y = scaled(kind, p, q, &t->x[b], &c);
    const __m512 min = c.min;
    if (kind->has_min)
        c.min = _mm512_maskz_mov_ps(0x00ff, min);
    acc[0] = added(kind, &c, t, b, _mm512_maskz_mov_ps(0x00ff, y), acc[0]);
    if (kind->has_min)
        c.min = later_half(min);
    acc[1] = added(kind, &c, t, b, later_half(y), acc[1]);
}

INLINE bool rows_of_kind(const struct cpu_matmul *m, const struct kind *kind, uint32_t row0,
                         uint32_t row1)
{
    const size_t n_cols = m->w->n_cols, n_blocks = n_cols / CPU_PAD;
    const bool half = kind->halves && n_cols % CPU_PAD == CPU_PAD / 2;
    if ((n_cols % CPU_PAD > 0 && !half) || n_blocks >= DECODE_MOST_BLOCKS)
        return false;
    struct token t;
    t.scale = m->x->scale;
    t.sum = m->x->sum;
    t.n_blocks = n_blocks;
    for (size_t i = 0; i < n_blocks; i++)
        split_block(kind, m->x->q + i * CPU_PAD, &t.x[i]);
    if (half) {
        split_block(kind, m->x->q + n_blocks * CPU_PAD, &t.x[n_blocks]);
        repeat_half(&t.x[n_blocks]);
    }
    const size_t row_bytes = n_blocks * kind->bytes + (half ? kind->bytes / 2 : 0);
    const uint8_t *row = (const uint8_t *)m->w->data + row0 * row_bytes;
    for (uint32_t r = row0; r < row1; r += 2, row += 2 * row_bytes) {
        const bool two = row1 - r >= 2; // if not: twice the same
        __m512 acc[2];
        const uint8_t *p = add_blocks(kind, &t, row, &acc[0]);
        const uint8_t *q = add_blocks(kind, &t, row + (two ? row_bytes : 0), &acc[1]);
        if (half)
            add_halves(kind, &t, p, q, acc);
        put(m, r, 0, v16_sum(acc[0]));
        if (two)
            put(m, r + 1, 0, v16_sum(acc[1]));
    }
    return true;
}

#define ROWS(type, ...)                                                                            \
    static bool rows_##type(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)              \
    {                                                                                              \
        static const struct kind kind = {unpack_##type, __VA_ARGS__};                              \
        return rows_of_kind(m, &kind, row0, row1);                                                 \
    }
#define BLOCKS(type) 8 * sizeof(struct block_##type)
ROWS(q4_0, BLOCKS(q4_0), .offset = 8, .halves = true)
ROWS(q4_1, BLOCKS(q4_1), .has_min = true, .halves = true)
ROWS(q5_0, BLOCKS(q5_0), .offset = 16, .halves = true)
ROWS(q5_1, BLOCKS(q5_1), .has_min = true, .halves = true)
ROWS(q2_k, sizeof(struct block_q2_k), .has_min = true)
ROWS(q3_k, sizeof(struct block_q3_k), .offset = 4)
ROWS(q4_k, sizeof(struct block_q4_k), .has_min = true)
ROWS(q5_k, sizeof(struct block_q5_k), .has_min = true)
ROWS(q6_k, sizeof(struct block_q6_k), .offset = 32)
ROWS(iq4_nl, BLOCKS(iq4_nl), .wide = true, .halves = true)
ROWS(iq4_xs, sizeof(struct block_iq4_xs), .wide = true)
ROWS(mxfp4, BLOCKS(mxfp4), .offset = 12, .halves = true)
ROWS(nvfp4, 4 * sizeof(struct block_nvfp4), .offset = 12, .halves = true)

typedef bool rows_fn(const struct cpu_matmul *, uint32_t, uint32_t);

static rows_fn *const rows_of_type[QUANT_TYPE_MAX] = {
    [QUANT_Q4_0] = rows_q4_0,     [QUANT_Q4_1] = rows_q4_1,     [QUANT_Q5_0] = rows_q5_0,
    [QUANT_Q5_1] = rows_q5_1,     [QUANT_Q2_K] = rows_q2_k,     [QUANT_Q3_K] = rows_q3_k,
    [QUANT_Q4_K] = rows_q4_k,     [QUANT_Q5_K] = rows_q5_k,     [QUANT_Q6_K] = rows_q6_k,
    [QUANT_IQ4_NL] = rows_iq4_nl, [QUANT_IQ4_XS] = rows_iq4_xs, [QUANT_MXFP4] = rows_mxfp4,
    [QUANT_NVFP4] = rows_nvfp4,
};

bool CPU_NAME(decode_rows)(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    rows_fn *const rows = rows_of_type[m->w->type];
    return rows && rows(m, row0, row1);
}
