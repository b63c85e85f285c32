// Products of one token with AVX-512 VNNI. As in decode_avx2.c weights stay bytes, which meet an
// upper and a lower byte of the activations; here vpdpbusd multiplies 64 of them and adds fours, in
// 32 bits, and both bytes are signed. A lane is a group of 16 weights, of a register's 16 in their
// order: weights are permuted so, four bytes at a time, before their bits are taken apart. Codes of
// up to 4 bits without a table stay where they are in their bytes, so that a lane's sum is a power
// of two too large; its activations' scale is as much smaller. Of grids a register has 64 columns
// in their order, whose sums are added by groups.
//
// Sums are exact, and what follows is done with floats in the order of matmul.c: the bits are the
// same.
#include "cpu/decode.h"

#include "cpu/simd_grid_signs.h"
#include "cpu/put.h"
#include "cpu/scales.h"

typedef __m512i lanes; // sixteen, of four bytes or of one number

// Activations of 256 columns as weights meet them.
struct split {
    lanes high[4], low[4]; // fours of the groups' columns
    lanes more;            // what is to be added to sums: nothing or less
    __m512 scale;          // cpu_act's, of sums in their lanes
};

// 256 weights of 16 groups.
struct codes {
    lanes w[4]; // unsigned: fours of the groups' columns
    __m512 scale, min;
};

// Unpacks 256 weights at p; q not NULL: 128 at p and 128 at q.
typedef void unpack_fn(const uint8_t *p, const uint8_t *q, struct codes *c);
// Makes a block of places in a grid ready, which unpack then has instead of p.
typedef void prepare_fn(const void *p, struct ready *r);

// Where codes are in the bytes that unpack leaves.
enum place { LOWEST, OF_PAIRS, OF_BLOCKS, OF_FIELDS };

struct kind {
    unpack_fn *unpack;
    size_t bytes;        // of 256 weights
    prepare_fn *prepare; // not NULL: weights come 64 columns a register, in their order
    int offset;          // what codes are too large by
    bool has_min;
    bool of_32; // blocks of 32 or 64: a row may end in the middle of 256 weights
    enum place place;
};

INLINE lanes load64(const void *p)
{
    return _mm512_loadu_si512(p);
}

// v in a register: gcc would load it once for each use (3 % of a token).
INLINE lanes kept(lanes v)
{
    __asm__("" : "+v"(v));
    return v;
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

// The lowest bit of each lane's codes.
INLINE lanes lowest_bit(enum place place)
{
    switch (place) {
    case OF_PAIRS:
        return EVERY(PAIR_BIT);
    case OF_BLOCKS:
        return EVERY(BLOCK_BIT);
    case OF_FIELDS:
        return EVERY(FIELD_BIT);
    default:
        return _mm512_setzero_si512();
    }
}

// Codes of `bits` bits, of which lanes have them in other places.
INLINE lanes in_place(lanes v, int bits, enum place place)
{
    const lanes lowest = _mm512_set1_epi8((char)((1 << bits) - 1));
    return _mm512_and_si512(v, _mm512_sllv_epi32(lowest, lowest_bit(place)));
}

INLINE lanes next(lanes at, int j)
{
    return _mm512_add_epi32(at, _mm512_set1_epi32(j));
}

// Of 128 bytes, what `at` says.
INLINE lanes of_two(lanes a, lanes at, lanes b)
{
    return _mm512_permutex2var_epi32(a, at, b);
}

// The scales and minima of Q4_K and Q5_K.
INLINE void pair_scales(const uint8_t *p, struct codes *c)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)p);
    const __m128 d = _mm_xor_ps(_mm_cvtph_ps(x), _mm_setr_ps(0.0f, -0.0f, 0.0f, 0.0f));
#define HALF(g)  ((g) / 8)
#define OF_32(g) ((g) / 2)
    const __m512 times = _mm512_permutexvar_ps(EVERY(HALF), _mm512_castps128_ps512(d));
    const __m512 both = _mm512_mul_ps(times, numbers(k_scale_bytes(x)));
    c->scale = _mm512_permutexvar_ps(EVERY(OF_32), both);
    c->min = _mm512_permutexvar_ps(next(EVERY(OF_32), 8), both);
#undef HALF
#undef OF_32
}

INLINE void unpack_q4_k(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct block_q4_k *b = (const struct block_q4_k *)p;
    (void)q;
    const lanes q0 = load64(b->q), q1 = load64(b->q + 64);
    for (int j = 0; j < 4; j++) {
        const lanes v = of_two(q0, next(EVERY(PAIR), j), q1);
        c->w[j] = in_place(v, 4, OF_PAIRS);
    }
    pair_scales(p, c);
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
    pair_scales(p, c);
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

// Codes of two bits, in their places.
INLINE void take_fields(const uint8_t q[64], struct codes *c)
{
    const lanes all = load64(q);
    for (int j = 0; j < 4; j++) {
        const lanes v = _mm512_permutexvar_epi32(next(EVERY(FIELD), j), all);
        c->w[j] = in_place(v, 2, OF_FIELDS);
    }
}

INLINE void unpack_tq2_0(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct block_tq2_0 *b = (const struct block_tq2_0 *)p;
    (void)q;
    take_fields(b->q, c);
    c->scale = _mm512_set1_ps(load_f16(b->d));
}

INLINE void unpack_q2_k(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct block_q2_k *b = (const struct block_q2_k *)p;
    (void)q;
    take_fields(b->q, c);
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

// The bytes of four blocks: the first 64, the last 32.
struct four {
    lanes a, b;
    int size; // of a block, in words of 16 bits
};

INLINE struct four load_four(const uint8_t *p, size_t size)
{
    const __m256i last = _mm256_loadu_si256((const __m256i *)(p + 4 * size - 32));
    return (struct four){kept(load64(p)), _mm512_castsi256_si512(last), (int)size / 2};
}

// Of four blocks, the words that `at` says.
INLINE lanes words(const struct four *f, lanes at)
{
    const __mmask32 later = _mm512_cmpge_epu16_mask(at, _mm512_set1_epi16(32));
    const lanes less = _mm512_set1_epi16((short)(4 * f->size - 48));
    return _mm512_permutex2var_epi16(f->a, _mm512_mask_sub_epi16(at, later, at, less), f->b);
}

// Four blocks, and four.
struct eight {
    struct four first, second;
};

INLINE struct eight load_eight(const uint8_t *p, const uint8_t *q, size_t size)
{
    return (struct eight){load_four(p, size), load_four(q ? q : p + 4 * size, size)};
}

// Of a block's 16 bytes of nibbles, four for each of its groups, as codes in their places.
INLINE void take_nibbles(lanes first, lanes second, struct codes *c)
{
    for (int j = 0; j < 4; j++)
        c->w[j] = in_place(of_two(first, next(EVERY(BLOCK), j), second), 4, OF_BLOCKS);
}

// Nibbles, which begin with a block's first-th word.
INLINE void unpack_nibbles(const struct eight *e, int first, struct codes *c)
{
#define TWO(g) ((g) / 4 * e->first.size + first + (g) % 4 * 2) * 0x10001 + 0x10000
    take_nibbles(words(&e->first, EVERY(TWO)), words(&e->second, EVERY(TWO)), c);
#undef TWO
}

INLINE void shift_nibbles(struct codes *c)
{
    for (int j = 0; j < 4; j++)
        c->w[j] = _mm512_srlv_epi32(c->w[j], EVERY(BLOCK_BIT));
}

// The first words of eight blocks.
struct heads {
    lanes first, second; // of four blocks
    int stride;          // from one's to the next one's, in words
};

// At most four of each.
INLINE struct heads load_heads(const struct eight *e, int n)
{
    const int size = e->first.size;
    if (3 * size + n <= 32)
        return (struct heads){e->first.a, e->second.a, size};
#define HEAD(g) ((g) % 8 / 2 * size + (g) % 2 * 2) * 0x10001 + 0x10000
    return (struct heads){words(&e->first, EVERY(HEAD)), words(&e->second, EVERY(HEAD)), 4};
#undef HEAD
}

// The fifth bits, of which a block's begin with its first-th word.
INLINE void add_fifths(const struct heads *h, int first, struct codes *c)
{
#define HALF(g) ((g) / 8 * 32 + (g) % 8 / 2 * h->stride + first + (g) % 2) * 0x10001
#define BYTE(g) ((g) % 4 * 0x04040404)
    const lanes bits = _mm512_permutex2var_epi16(h->first, EVERY(HALF), h->second);
    const lanes sixteen = _mm512_set1_epi8(16);
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
INLINE void half_floats(const struct heads *h, bool has_min, struct codes *c)
{
#define WORD(g) ((g) % 8 / 4 * 32 + (g) % 4 * h->stride + (g) / 8) * 0x10001
    const lanes v = _mm512_permutex2var_epi16(h->first, EVERY(WORD), h->second);
#undef WORD
    c->scale = _mm512_cvtph_ps(_mm512_castsi512_si256(v));
    if (has_min)
        c->min = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1));
}

INLINE void unpack_q4_0(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_q4_0));
    const struct heads h = load_heads(&e, 1);
    unpack_nibbles(&e, offsetof(struct block_q4_0, q) / 2, c);
    half_floats(&h, false, c);
}

INLINE void unpack_q4_1(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_q4_1));
    const struct heads h = load_heads(&e, 2);
    unpack_nibbles(&e, offsetof(struct block_q4_1, q) / 2, c);
    half_floats(&h, true, c);
}

INLINE void unpack_q5_0(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_q5_0));
    const struct heads h = load_heads(&e, 3);
    unpack_nibbles(&e, offsetof(struct block_q5_0, q) / 2, c);
    shift_nibbles(c);
    add_fifths(&h, offsetof(struct block_q5_0, high) / 2, c);
    half_floats(&h, false, c);
}

INLINE void unpack_q5_1(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_q5_1));
    const struct heads h = load_heads(&e, 4);
    unpack_nibbles(&e, offsetof(struct block_q5_1, q) / 2, c);
    shift_nibbles(c);
    add_fifths(&h, offsetof(struct block_q5_1, high) / 2, c);
    half_floats(&h, true, c);
}

INLINE void unpack_iq4_nl(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const struct eight e = load_eight(p, q, sizeof(struct block_iq4_nl));
    const struct heads h = load_heads(&e, 1);
    unpack_nibbles(&e, offsetof(struct block_iq4_nl, q) / 2, c);
    shift_nibbles(c);
    look_up(iq4_values, 128, c);
    half_floats(&h, false, c);
}

// NVFP4: four blocks of 64, as long as eight of 32. A group is 8 bytes, first low nibbles.
INLINE void unpack_nvfp4(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    enum { SIZE = sizeof(struct block_nvfp4) };
    const struct eight e = load_eight(p, q, SIZE / 2);
#define TWO(g) ((g) / 8 * (SIZE / 2) + 2 + (g) % 8 * 2) * 0x10001 + 0x10000
    const lanes first = words(&e.first, EVERY(TWO)), second = words(&e.second, EVERY(TWO));
#undef TWO
    for (int j = 0; j < 2; j++) {
#define GROUP(g) ((g)*2)
        const lanes v = of_two(first, next(EVERY(GROUP), j), second);
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

// The nibbles of four blocks of MXFP4, 17 bytes each, which begin at odd places and at even ones.
INLINE lanes mxfp4_nibbles(const uint8_t *p)
{
    enum { SIZE = sizeof(struct block_mxfp4), B = 4 * SIZE - 64 };
    const lanes even = load64(p + 1), odd = load64(p + B); // the first and the third block's
#define TWO(g)                                                                                     \
    ((g) / 4 % 2 ? 32 + ((g) / 4 * SIZE + 1 - B) / 2 + (g) % 4 * 2                                 \
                 : (g) / 4 * SIZE / 2 + (g) % 4 * 2) *                                             \
            0x10001 +                                                                              \
        0x10000
    return _mm512_permutex2var_epi16(even, EVERY(TWO), odd);
#undef TWO
}

INLINE void unpack_mxfp4(const uint8_t *p, const uint8_t *q, struct codes *c)
{
    const uint8_t *r = q ? q : p + 4 * sizeof(struct block_mxfp4);
    take_nibbles(mxfp4_nibbles(p), mxfp4_nibbles(r), c);
    shift_nibbles(c);
    look_up(e2m1_values, 12, c);
    const __m128i v = _mm_cvtsi64_si128((long long)mxfp4_exponents(p, r));
    c->scale = mxfp4_scales(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(v, v)));
}

// ---- grids, of which the places are made in a register and read back one by one

#define UNPACK_GRID(type, codes_of, more)                                                          \
    INLINE void unpack_##type(const uint8_t *p, const uint8_t *q, struct codes *c)                 \
    {                                                                                              \
        const struct ready *r = (const struct ready *)(const void *)p;                             \
        (void)q;                                                                                   \
        for (int i = 0; i < 4; i++)                                                                \
            c->w[i] = _mm512_add_epi8(codes_of(r, i), _mm512_set1_epi8(more));                     \
        c->scale = r->scale;                                                                       \
    }
enum { MORE = 64, MORE_IQ1 = 9 }; // than the least of all codes is below 0
UNPACK_GRID(iq2_xxs, codes_iq2_xxs, MORE)
UNPACK_GRID(iq2_xs, codes_iq2_xs, MORE)
UNPACK_GRID(iq2_s, codes_iq2_s, MORE)
UNPACK_GRID(iq3_s, codes_iq3_s, MORE)
UNPACK_GRID(iq1_s, codes_iq1, MORE_IQ1)
UNPACK_GRID(iq1_m, codes_iq1, MORE_IQ1)
#undef UNPACK_GRID

// ---- products

// sum, and what the signed bytes of each lane come to.
INLINE lanes plus_bytes(lanes sum, const lanes v[4])
{
    for (int j = 0; j < 4; j++)
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), v[j]);
    return sum;
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

INLINE void split_block(const struct kind *kind, const int16_t *q, float scale, struct split *s)
{
    const lanes upper = _mm512_set1_epi16((short)0xff00), lower = _mm512_set1_epi16(255);
    const lanes half = _mm512_set1_epi16(128); // what is lost of `high`, `low` being signed
    lanes high[4], low[4];
    for (int i = 0; i < 4; i++) {
        const lanes even = load64(q + 64 * i), odd = load64(q + 64 * i + 32);
        high[i] = _mm512_or_si512(_mm512_srli_epi16(_mm512_add_epi16(even, half), 8),
                                  _mm512_and_si512(_mm512_add_epi16(odd, half), upper));
        low[i] = _mm512_or_si512(_mm512_and_si512(even, lower), _mm512_slli_epi16(odd, 8));
    }
    by_fours(high, s->high);
    by_fours(low, s->low);
    const lanes none = _mm512_setzero_si512(), bit = lowest_bit(kind->place);
    const lanes h = _mm512_slli_epi32(plus_bytes(none, s->high), 8);
    const lanes offset = _mm512_sllv_epi32(_mm512_set1_epi32(-kind->offset), bit);
    s->more = _mm512_mullo_epi32(plus_bytes(h, s->low), offset);
    for (int i = 0; kind->prepare && i < 4; i++) {
        s->high[i] = high[i];
        s->low[i] = low[i];
    }
    s->scale =
        _mm512_scalef_ps(_mm512_set1_ps(scale), _mm512_cvtepi32_ps(_mm512_sub_epi32(none, bit)));
}

// Of 128 columns, for two rows.
INLINE void repeat_half(struct split *s)
{
    for (int j = 0; j < 4; j++) {
        s->high[j] = _mm512_shuffle_i64x2(s->high[j], s->high[j], 0x44);
        s->low[j] = _mm512_shuffle_i64x2(s->low[j], s->low[j], 0x44);
    }
    s->more = _mm512_shuffle_i64x2(s->more, s->more, 0x44);
}

// One token's activations for all rows.
struct token {
    struct split x[DECODE_MOST_BLOCKS];
    const float *sum; // cpu_act's
    size_t n_blocks;
};

// The sums of fours of columns in their order, 64 of them in each of s, by groups.
INLINE lanes by_groups(const lanes s[4])
{
    const lanes a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    const lanes b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    const lanes sum = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
#define LANE(g) ((g) % 4 * 4 + (g) / 4)
    return _mm512_permutexvar_epi32(EVERY(LANE), sum);
#undef LANE
}

// As scaled, of columns in their order.
INLINE void scaled_in_order(const struct codes *c, int n, const struct split *x, __m512 y[2])
{
    const lanes none = _mm512_setzero_si512();
    for (int i = 0; i < n; i++) {
        lanes s[4];
        for (int j = 0; j < 4; j++) {
            const lanes high = _mm512_dpbusd_epi32(none, c[i].w[j], x->high[j]);
            s[j] = _mm512_dpbusd_epi32(_mm512_slli_epi32(high, 8), c[i].w[j], x->low[j]);
        }
        const lanes sum = _mm512_add_epi32(by_groups(s), x->more);
        y[i] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), c[i].scale);
    }
}

// Of n rows' codes of a block the sums by groups, times their scales.
INLINE void scaled(const struct codes *c, int n, const struct split *x, __m512 y[2])
{
    const lanes more = kept(x->more);
    lanes high[2], low[2];
    for (int i = 0; i < n; i++) {
        high[i] = _mm512_setzero_si512();
        low[i] = more;
    }
    for (int j = 0; j < 4; j++) {
        const lanes upper = kept(x->high[j]), lower = kept(x->low[j]);
        for (int i = 0; i < n; i++) {
            high[i] = _mm512_dpbusd_epi32(high[i], c[i].w[j], upper);
            low[i] = _mm512_dpbusd_epi32(low[i], c[i].w[j], lower);
        }
    }
    for (int i = 0; i < n; i++) {
        const lanes sum = _mm512_add_epi32(_mm512_slli_epi32(high[i], 8), low[i]);
        y[i] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), c[i].scale);
    }
}

// Adds a block's products to a row's lanes.
INLINE __m512 added(const struct kind *kind, __m512 min, const struct token *t, size_t b, __m512 y,
                    __m512 acc)
{
    acc = _mm512_fmadd_ps(y, t->x[b].scale, acc);
    return kind->has_min ? _mm512_fmadd_ps(min, _mm512_loadu_ps(t->sum + 16 * b), acc) : acc;
}

// The whole blocks of two rows, which meet the activations together. Weights are asked for in their
// order in memory, from `ahead` on: asked for where p and q are, they come half as fast.
INLINE void add_blocks(const struct kind *kind, const struct token *t, const uint8_t *p,
                       const uint8_t *q, const uint8_t *ahead, __m512 acc[2])
{
    struct ready ready[2][2];
    acc[0] = acc[1] = _mm512_setzero_ps();
    for (size_t b = 0; b < t->n_blocks; b++, p += kind->bytes, q += kind->bytes) {
        struct codes c[2];
        __m512 y[2];
        fetch(ahead, 2 * kind->bytes);
        ahead += 2 * kind->bytes;
        if (kind->prepare) { // a block ahead: what is looked up waits for it
            for (size_t k = b == 0 ? 0 : 1; k < 2 && b + k < t->n_blocks; k++) {
                kind->prepare(p + k * kind->bytes, &ready[(b + k) % 2][0]);
                kind->prepare(q + k * kind->bytes, &ready[(b + k) % 2][1]);
            }
            kind->unpack((const uint8_t *)&ready[b % 2][0], NULL, &c[0]);
            kind->unpack((const uint8_t *)&ready[b % 2][1], NULL, &c[1]);
            scaled_in_order(c, 2, &t->x[b], y);
        } else {
            kind->unpack(p, NULL, &c[0]);
            kind->unpack(q, NULL, &c[1]);
            scaled(c, 2, &t->x[b], y);
        }
        for (int i = 0; i < 2; i++)
            acc[i] = added(kind, c[i].min, t, b, y[i], acc[i]);
    }
}

// The eighth lane and those after it first, then nothing.
INLINE __m512 later_half(__m512 v)
{
    return _mm512_maskz_shuffle_f32x4(0x00ff, v, v, 0x0e);
}

// What is behind the whole blocks of two rows, together if both find room in a block. Behind it
// other weights are read, whatever they are.
INLINE void add_rest(const struct kind *kind, const struct token *t, size_t n_groups,
                     const uint8_t *p, const uint8_t *q, __m512 acc[2])
{
    const size_t b = t->n_blocks;
    const __mmask16 there = (__mmask16)((1u << n_groups) - 1);
    struct codes c[2];
    __m512 y[2];
    if (n_groups > 8) {
        kind->unpack(p, NULL, &c[0]);
        kind->unpack(q, NULL, &c[1]);
        scaled(c, 2, &t->x[b], y);
    } else {
        kind->unpack(p, q, &c[0]);
        scaled(c, 1, &t->x[b], y);
        y[1] = later_half(y[0]);
        if (kind->has_min)
            c[1].min = later_half(c[0].min);
    }
    for (int i = 0; i < 2; i++) {
        const __m512 min = kind->has_min ? _mm512_maskz_mov_ps(there, c[i].min) : c[i].min;
        acc[i] = added(kind, min, t, b, _mm512_maskz_mov_ps(there, y[i]), acc[i]);
    }
}

INLINE bool rows_of_kind(const struct cpu_matmul *m, const struct kind *kind, uint32_t row0,
                         uint32_t row1)
{
    const size_t n_cols = m->w->n_cols, n_blocks = n_cols / CPU_PAD;
    const size_t rest = n_cols % CPU_PAD, rest_bytes = rest * kind->bytes / CPU_PAD;
    if ((rest > 0 && !kind->of_32) || n_blocks >= DECODE_MOST_BLOCKS)
        return false;
    struct token t;
    t.sum = m->x->sum;
    t.n_blocks = n_blocks;
    for (size_t i = 0; i < n_blocks + (rest > 0); i++)
        split_block(kind, m->x->q + i * CPU_PAD, m->x->scale[i], &t.x[i]);
    if (rest > 0 && rest <= CPU_PAD / 2)
        repeat_half(&t.x[n_blocks]);
    const size_t whole = n_blocks * kind->bytes, row_bytes = whole + rest_bytes;
    const size_t far = 2 * row_bytes > AHEAD ? 2 * row_bytes : AHEAD; // not behind the second row
    const uint8_t *row = (const uint8_t *)m->w->data + row0 * row_bytes;
    const uint8_t *end = (const uint8_t *)m->w->data + m->w->rows * row_bytes;
    for (uint32_t r = row0; r < row1; r += 2, row += 2 * row_bytes) {
        const bool two = row1 - r >= 2; // if not: twice the same
        __m512 acc[2];
        const uint8_t *other = row + (two ? row_bytes : 0);
        add_blocks(kind, &t, row, other, row + far, acc);
        if (rest > 0) {
            const uint8_t *p = row + whole, *q = other + whole;
            uint8_t last[2][DECODE_REST_BYTES];
            fetch(row + far + 2 * whole, 2 * rest_bytes);
            if ((size_t)(end - q) < kind->bytes) {
                p = memcpy(last[0], p, rest_bytes);
                q = memcpy(last[1], q, rest_bytes);
            }
            add_rest(kind, &t, rest / 16, p, q, acc);
        }
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
ROWS(q4_0, BLOCKS(q4_0), .offset = 8, .of_32 = true, .place = OF_BLOCKS)
ROWS(q4_1, BLOCKS(q4_1), .has_min = true, .of_32 = true, .place = OF_BLOCKS)
ROWS(q5_0, BLOCKS(q5_0), .offset = 16, .of_32 = true)
ROWS(q5_1, BLOCKS(q5_1), .has_min = true, .of_32 = true)
ROWS(q2_k, sizeof(struct block_q2_k), .has_min = true, .place = OF_FIELDS)
ROWS(q3_k, sizeof(struct block_q3_k), .offset = 4)
ROWS(tq2_0, sizeof(struct block_tq2_0), .offset = 1, .place = OF_FIELDS)
ROWS(q4_k, sizeof(struct block_q4_k), .has_min = true, .place = OF_PAIRS)
ROWS(q5_k, sizeof(struct block_q5_k), .has_min = true)
ROWS(q6_k, sizeof(struct block_q6_k), .offset = 32)
ROWS(iq4_nl, BLOCKS(iq4_nl), .offset = 128, .of_32 = true)
ROWS(iq4_xs, sizeof(struct block_iq4_xs), .offset = 128)
ROWS(mxfp4, BLOCKS(mxfp4), .offset = 12, .of_32 = true)
ROWS(nvfp4, 4 * sizeof(struct block_nvfp4), .offset = 12, .of_32 = true)
ROWS(iq2_xxs, sizeof(struct block_iq2_xxs), .prepare = prepare_iq2_xxs, .offset = MORE)
ROWS(iq2_xs, sizeof(struct block_iq2_xs), .prepare = prepare_iq2_xs, .offset = MORE)
ROWS(iq2_s, sizeof(struct block_iq2_s), .prepare = prepare_iq2_s, .offset = MORE)
ROWS(iq3_s, sizeof(struct block_iq3_s), .prepare = prepare_iq3_s, .offset = MORE)
ROWS(iq1_s, sizeof(struct block_iq1_s), .prepare = prepare_iq1_s, .offset = MORE_IQ1)
ROWS(iq1_m, sizeof(struct block_iq1_m), .prepare = prepare_iq1_m, .offset = MORE_IQ1)

typedef bool rows_fn(const struct cpu_matmul *, uint32_t, uint32_t);

static rows_fn *const rows_of_type[QUANT_TYPE_MAX] = {
    [QUANT_Q4_0] = rows_q4_0,       [QUANT_Q4_1] = rows_q4_1,     [QUANT_Q5_0] = rows_q5_0,
    [QUANT_Q5_1] = rows_q5_1,       [QUANT_Q2_K] = rows_q2_k,     [QUANT_Q3_K] = rows_q3_k,
    [QUANT_Q4_K] = rows_q4_k,       [QUANT_Q5_K] = rows_q5_k,     [QUANT_Q6_K] = rows_q6_k,
    [QUANT_IQ4_NL] = rows_iq4_nl,   [QUANT_IQ4_XS] = rows_iq4_xs, [QUANT_MXFP4] = rows_mxfp4,
    [QUANT_NVFP4] = rows_nvfp4,     [QUANT_TQ2_0] = rows_tq2_0,   [QUANT_IQ2_S] = rows_iq2_s,
    [QUANT_IQ2_XXS] = rows_iq2_xxs, [QUANT_IQ2_XS] = rows_iq2_xs, [QUANT_IQ3_S] = rows_iq3_s,
    [QUANT_IQ1_S] = rows_iq1_s,     [QUANT_IQ1_M] = rows_iq1_m,
};

bool CPU_NAME(decode_rows)(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    rows_fn *const rows = rows_of_type[m->w->type];
    return rows && rows(m, row0, row1);
}
