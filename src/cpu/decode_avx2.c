// Products of one token. What matmul.c does for any number of tokens widens every weight to 16
// bits, and adds lanes of a register for every 16 weights. Here weights stay bytes, and lanes are
// groups of 16 weights:
//
// - An activation of 16 bits is 256 times its upper byte, signed, and its lower one, unsigned. A
//   weight's code, unsigned and of at most 6 bits, is both a signed and an unsigned byte:
//   vpmaddubsw multiplies 32 of them with either byte, and adds neighbours, in 16 bits; several
//   such sums still fit (dot4). What codes are too large by (8 in Q4_0) is taken off the sum: so
//   many times the activations' own.
// - Blocks of packed weights are transposed, four bytes at a time, before codes are taken out of
//   them: then the four bytes of one lane belong to one group of 16, in all registers to the same
//   group, and sums stay in their lanes.
//
// All of that is exact, and what follows is done with floats in the order of matmul.c, group by
// group: the bits are the same.
#include "cpu/decode.h"

#include "cpu/put.h"
#include "cpu/scales.h"

typedef __m256i bytes; // eight lanes of four
typedef __m256i whole; // eight numbers

// Activations of 256 columns as weights meet them: registers of eight lanes.
struct split_register {
    _Alignas(32) uint8_t high[32], low[32];
};
struct split {
    struct split_register x[8]; // by fours of a group's columns: of the first sum, of the second
    int32_t less[16];           // what sums are too large by
    float sum[16];              // cpu_act's
};

// Which of 16 groups is lane k of the first sum, of the second: groups[k], groups[8 + k].
struct order {
    uint8_t groups[16];
};

// The sums of 256 weights, group by group.
struct lanes {
    whole sum[2];
    __m256 scale[2], min[2];
};

// Unpacks 256 weights, of which the second half is at q, and multiplies.
typedef void dot_fn(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l);
// The sum of 16 lanes, in the order of v16_sum.
typedef float total_fn(const __m256 acc[2]);

struct kind {
    const struct order *order, *half; // half: of 128 columns, twice
    dot_fn *dot;
    total_fn *total;
    int offset; // what codes are too large by
    size_t block_bytes;
    bool has_min;
};

// How many sums of two products, of codes up to `most` and bytes of magnitudes up to `byte`, fit 16
// bits: vpmaddubsw would clamp, vpaddw would wrap. Of what dot4 asks for, the largest are
// 4 * 2 * 15 * 255 = 30,600, 2 * 2 * 31 * 255 = 31,620 and 4 * 2 * 31 * 128 = 31,744.
INLINE int fitting(int most, int byte)
{
    const int n = 32767 / (2 * byte * most);
    return n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

// times * the sums of s, so many of which fit 16 bits together
INLINE whole widened(const __m256i s[4], int together, short times)
{
    whole sum = _mm256_setzero_si256();
    for (int j = 0; j < 4; j += together) {
        __m256i t = s[j];
        for (int k = 1; k < together; k++)
            t = _mm256_add_epi16(t, s[j + k]);
        const whole two = _mm256_madd_epi16(t, _mm256_set1_epi16(times));
        sum = j == 0 ? two : _mm256_add_epi32(sum, two);
    }
    return sum;
}

INLINE bytes load32(const void *p)
{
    return _mm256_loadu_si256(p);
}

// 16 weights of each lane's group: codes of at most `most`, in registers whose activations are
// x->x[first], [first + 2], ... A sum of two products is at most 2 * 255 * most.
INLINE whole dot4(const bytes w[4], const struct split *x, int first, int most)
{
    __m256i high[4], low[4];
    for (int j = 0; j < 4; j++) {
        const int at = first + 2 * j;
        high[j] = _mm256_maddubs_epi16(w[j], load32(x->x[at].high));
        low[j] = _mm256_maddubs_epi16(load32(x->x[at].low), w[j]);
    }
    return _mm256_add_epi32(widened(high, fitting(most, 128), 256),
                            widened(low, fitting(most, 255), 1));
}

// 16 bytes at p, then 16 at q. vinserti128 takes four times as long as a blend (Zen 3).
INLINE bytes load16x2(const uint8_t *p, const uint8_t *q)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)p), b = _mm_loadu_si128((const __m128i *)q);
    return _mm256_blend_epi32(_mm256_castsi128_si256(a), _mm256_broadcastsi128_si256(b), 0xf0);
}

// Lane k of v[i] to lane i of v[k], in both halves.
INLINE void transpose(bytes v[4])
{
    const bytes a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    const bytes c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm256_unpacklo_epi64(a, c);
    v[1] = _mm256_unpackhi_epi64(a, c);
    v[2] = _mm256_unpacklo_epi64(b, d);
    v[3] = _mm256_unpackhi_epi64(b, d);
}

INLINE bytes low_nibbles(bytes v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

INLINE bytes high_nibbles(bytes v)
{
    return low_nibbles(_mm256_srli_epi16(v, 4));
}

// ---- blocks of 32: lanes are blocks, whose first groups of 16 are apart from their second ones

static const struct order of_blocks = {{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}};
static const struct order of_half = {{0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7}};

INLINE float total4(__m128 u)
{
    u = _mm_add_ps(u, _mm_movehl_ps(u, u));
    return _mm_cvtss_f32(_mm_add_ss(u, _mm_movehdup_ps(u)));
}

INLINE __m128 halves(__m256 v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

INLINE float blocks_total(const __m256 acc[2])
{
    const __m128 even = halves(acc[0]), odd = halves(acc[1]);
    return total4(_mm_add_ps(_mm_unpacklo_ps(even, odd), _mm_unpackhi_ps(even, odd)));
}

// Half floats of four blocks at p and four at q.
INLINE __m256 load_f16x8(const uint8_t *p, const uint8_t *q, size_t stride)
{
    __m128i v = _mm_cvtsi32_si128((int)load_u16(p));
    v = _mm_insert_epi16(v, (int)load_u16(p + stride), 1);
    v = _mm_insert_epi16(v, (int)load_u16(p + 2 * stride), 2);
    v = _mm_insert_epi16(v, (int)load_u16(p + 3 * stride), 3);
    v = _mm_insert_epi16(v, (int)load_u16(q), 4);
    v = _mm_insert_epi16(v, (int)load_u16(q + stride), 5);
    v = _mm_insert_epi16(v, (int)load_u16(q + 2 * stride), 6);
    v = _mm_insert_epi16(v, (int)load_u16(q + 3 * stride), 7);
    return _mm256_cvtph_ps(v);
}

INLINE void load_nibbles(const uint8_t *p, const uint8_t *q, size_t stride, bytes v[4])
{
    for (size_t i = 0; i < 4; i++)
        v[i] = load16x2(p + i * stride, q + i * stride);
    transpose(v);
}

INLINE void dot_nibbles(const bytes v[4], const struct split *x, struct lanes *l)
{
    bytes w[4];
    for (int j = 0; j < 4; j++)
        w[j] = low_nibbles(v[j]);
    l->sum[0] = dot4(w, x, 0, 15);
    for (int j = 0; j < 4; j++)
        w[j] = high_nibbles(v[j]);
    l->sum[1] = dot4(w, x, 1, 15);
}

INLINE void dot_q4_0(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const size_t size = sizeof(struct block_q4_0), at = offsetof(struct block_q4_0, q);
    bytes v[4];
    load_nibbles(p + at, q + at, size, v);
    dot_nibbles(v, x, l);
    l->scale[0] = l->scale[1] = load_f16x8(p, q, size);
}

INLINE void dot_q4_1(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const size_t size = sizeof(struct block_q4_1), at = offsetof(struct block_q4_1, q);
    const size_t m = offsetof(struct block_q4_1, m);
    bytes v[4];
    load_nibbles(p + at, q + at, size, v);
    dot_nibbles(v, x, l);
    l->scale[0] = l->scale[1] = load_f16x8(p, q, size);
    l->min[0] = l->min[1] = load_f16x8(p + m, q + m, size);
}

INLINE whole load_u32x8(const uint8_t *p, const uint8_t *q, size_t stride)
{
    return _mm256_setr_epi32((int)load_u32(p), (int)load_u32(p + stride),
                             (int)load_u32(p + 2 * stride), (int)load_u32(p + 3 * stride),
                             (int)load_u32(q), (int)load_u32(q + stride),
                             (int)load_u32(q + 2 * stride), (int)load_u32(q + 3 * stride));
}

// 16 where the j-th four of a lane's 32 bits are set: from bit `first` on, a bit to a byte.
INLINE bytes fifth_bits(whole bits, int first)
{
    const char at = (char)(first / 8);
    const bytes four = _mm256_set_epi8(12 + at, 12 + at, 12 + at, 12 + at, 8 + at, 8 + at, 8 + at,
                                       8 + at, 4 + at, 4 + at, 4 + at, 4 + at, at, at, at, at,
                                       12 + at, 12 + at, 12 + at, 12 + at, 8 + at, 8 + at, 8 + at,
                                       8 + at, 4 + at, 4 + at, 4 + at, 4 + at, at, at, at, at);
    const bytes bit = _mm256_set1_epi32((int)(0x08040201u << first % 8));
    const bytes set = _mm256_and_si256(_mm256_shuffle_epi8(bits, four), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(set, bit), _mm256_set1_epi8(16));
}

INLINE void dot_fives(const bytes v[4], whole bits, const struct split *x, struct lanes *l)
{
    bytes w[4];
    for (int j = 0; j < 4; j++)
        w[j] = _mm256_or_si256(low_nibbles(v[j]), fifth_bits(bits, 4 * j));
    l->sum[0] = dot4(w, x, 0, 31);
    for (int j = 0; j < 4; j++)
        w[j] = _mm256_or_si256(high_nibbles(v[j]), fifth_bits(bits, 16 + 4 * j));
    l->sum[1] = dot4(w, x, 1, 31);
}

INLINE void dot_q5_0(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const size_t size = sizeof(struct block_q5_0), at = offsetof(struct block_q5_0, q);
    const size_t high = offsetof(struct block_q5_0, high);
    bytes v[4];
    load_nibbles(p + at, q + at, size, v);
    dot_fives(v, load_u32x8(p + high, q + high, size), x, l);
    l->scale[0] = l->scale[1] = load_f16x8(p, q, size);
}

INLINE void dot_q5_1(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const size_t size = sizeof(struct block_q5_1), at = offsetof(struct block_q5_1, q);
    const size_t high = offsetof(struct block_q5_1, high), m = offsetof(struct block_q5_1, m);
    bytes v[4];
    load_nibbles(p + at, q + at, size, v);
    dot_fives(v, load_u32x8(p + high, q + high, size), x, l);
    l->scale[0] = l->scale[1] = load_f16x8(p, q, size);
    l->min[0] = l->min[1] = load_f16x8(p + m, q + m, size);
}

// Nibbles that stand for levels, more by 12, of which none is negative then.
INLINE bytes lifted(bytes nibbles)
{
    const __m128i levels = _mm_loadu_si128((const __m128i *)e2m1_values);
    const __m128i table = _mm_add_epi8(levels, _mm_set1_epi8(12));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles);
}

INLINE void dot_mxfp4(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const size_t size = sizeof(struct block_mxfp4), at = offsetof(struct block_mxfp4, q);
    bytes v[4], w[4];
    load_nibbles(p + at, q + at, size, v);
    for (int j = 0; j < 4; j++)
        w[j] = lifted(low_nibbles(v[j]));
    l->sum[0] = dot4(w, x, 0, 24);
    for (int j = 0; j < 4; j++)
        w[j] = lifted(high_nibbles(v[j]));
    l->sum[1] = dot4(w, x, 1, 24);
    // As mxfp4_scale_bits.
    const whole e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)mxfp4_exponents(p, q)));
    const whole bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const whole small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    l->scale[0] = l->scale[1] = _mm256_castsi256_ps(
        _mm256_blendv_epi8(small, bits, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
}

// Blocks of 64, two at p and two at q: a group is 8 bytes, first low nibbles.
INLINE void dot_nvfp4(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const size_t size = sizeof(struct block_nvfp4), at = offsetof(struct block_nvfp4, q);
    bytes v[4];
    for (size_t i = 0; i < 4; i++) {
        const size_t from = i / 2 * size + at + i % 2 * 16;
        v[i] = load16x2(p + from, q + from);
    }
    transpose(v);
    for (int i = 0; i < 2; i++) {
        const bytes a = v[2 * i], b = v[2 * i + 1];
        const bytes w[4] = {lifted(low_nibbles(a)), lifted(low_nibbles(b)), lifted(high_nibbles(a)),
                            lifted(high_nibbles(b))};
        l->sum[i] = dot4(w, x, i, 24);
    }
    // As half floats, with the same bits of mantissa and 8 more as bias; of even groups, of odd.
    const __m256i none = _mm256_set1_epi16(0x7f);
    __m256i s = _mm256_cvtepu8_epi16(_mm_setr_epi32((int)load_u32(p), (int)load_u32(p + size),
                                                    (int)load_u32(q), (int)load_u32(q + size)));
    s = _mm256_andnot_si256(_mm256_cmpeq_epi16(s, none),
                            _mm256_slli_epi16(_mm256_and_si256(s, none), 7));
    const __m128i parts = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    s = _mm256_shuffle_epi8(s, _mm256_broadcastsi128_si256(parts));
    s = _mm256_permute4x64_epi64(s, 0xd8);
    const __m256 more = _mm256_set1_ps(128.0f);
    l->scale[0] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(s)), more);
    l->scale[1] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(s, 1)), more);
}

// ---- blocks of 256: lanes are parts of a block

// The bytes of a sixteen, of which `pick` says one for each lane, as numbers.
INLINE __m256 picked(__m128i sixteen, __m256i pick)
{
    const __m256i v = _mm256_broadcastsi128_si256(sixteen);
    return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(v, pick));
}

// Byte n to a lane: the others are 0.
#define LANE(n) (int)(0x80808000u | (n))
#define LANES(a, b, c, d, e, f, g, h)                                                              \
    _mm256_setr_epi32(LANE(a), LANE(b), LANE(c), LANE(d), LANE(e), LANE(f), LANE(g), LANE(h))

// Q4_K, Q5_K: 16 bytes are a group and the next but one. Lanes are the four of 64 weights, first
// groups and second ones in different halves of a register.
static const struct order of_pairs = {{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}};

INLINE __m128 add_high(__m128 v)
{
    return _mm_add_ps(v, _mm_movehl_ps(v, v));
}

INLINE float pairs_total(const __m256 acc[2])
{
    const __m256 a = acc[0], b = acc[1];
    const __m256 eights =
        _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    const __m256 fours = _mm256_add_ps(_mm256_shuffle_ps(eights, eights, 0x88),
                                       _mm256_shuffle_ps(eights, eights, 0xdd));
    const __m256 twos = _mm256_add_ps(fours, _mm256_movehdup_ps(fours));
    return _mm_cvtss_f32(halves(twos));
}

// The eight scales and minima of Q4_K and Q5_K.
INLINE void pair_scales(const uint8_t *p, struct lanes *l)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)p), v = k_scale_bytes(x);
    const __m128 d = _mm_xor_ps(_mm_cvtph_ps(x), _mm_setr_ps(0.0f, -0.0f, 0.0f, 0.0f));
    const __m256 one = _mm256_broadcastss_ps(d), min = _mm256_broadcastss_ps(_mm_movehdup_ps(d));
    l->scale[0] = _mm256_mul_ps(one, picked(v, LANES(0, 2, 4, 6, 0, 2, 4, 6)));
    l->scale[1] = _mm256_mul_ps(one, picked(v, LANES(1, 3, 5, 7, 1, 3, 5, 7)));
    l->min[0] = _mm256_mul_ps(min, picked(v, LANES(8, 10, 12, 14, 8, 10, 12, 14)));
    l->min[1] = _mm256_mul_ps(min, picked(v, LANES(9, 11, 13, 15, 9, 11, 13, 15)));
}

INLINE void load_pairs(const uint8_t q[128], bytes v[4])
{
    for (int i = 0; i < 4; i++)
        v[i] = load32(q + 32 * i);
    transpose(v);
}

INLINE void dot_q4_k(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const struct block_q4_k *b = (const struct block_q4_k *)p;
    bytes v[4];
    (void)q;
    load_pairs(b->q, v);
    dot_nibbles(v, x, l);
    pair_scales(p, l);
}

INLINE void dot_q5_k(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const struct block_q5_k *b = (const struct block_q5_k *)p;
    const bytes high = load32(b->high), sixteen = _mm256_set1_epi8(16);
    const bytes fifths[4] = {_mm256_shuffle_epi32(high, 0x00), _mm256_shuffle_epi32(high, 0x55),
                             _mm256_shuffle_epi32(high, 0xaa), _mm256_shuffle_epi32(high, 0xff)};
    bytes v[4], w[4], t[4];
    (void)q;
    load_pairs(b->q, v);
    for (int j = 0; j < 4; j++) {
        t[j] = _mm256_srlv_epi32(fifths[j], _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
        const bytes fifth = _mm256_and_si256(_mm256_slli_epi16(t[j], 4), sixteen);
        w[j] = _mm256_or_si256(low_nibbles(v[j]), fifth);
    }
    l->sum[0] = dot4(w, x, 0, 31);
    for (int j = 0; j < 4; j++) {
        const bytes fifth = _mm256_and_si256(_mm256_slli_epi16(t[j], 3), sixteen);
        w[j] = _mm256_or_si256(high_nibbles(v[j]), fifth);
    }
    l->sum[1] = dot4(w, x, 1, 31);
    pair_scales(p, l);
}

// Q6_K: 16 bytes are a group and the fourth after it, in both halves of the block.
static const struct order of_fourths = {{0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15}};

INLINE float fourths_total(const __m256 acc[2])
{
    return total4(_mm_add_ps(halves(acc[0]), halves(acc[1])));
}

// Of two sixteens in each half, the j-th fours of both, twice.
INLINE void twice(bytes first, bytes second, bytes t[4])
{
    const bytes a = _mm256_unpacklo_epi32(first, second), b = _mm256_unpackhi_epi32(first, second);
    t[0] = _mm256_unpacklo_epi64(a, a);
    t[1] = _mm256_unpackhi_epi64(a, a);
    t[2] = _mm256_unpacklo_epi64(b, b);
    t[3] = _mm256_unpackhi_epi64(b, b);
}

INLINE void dot_q6_k(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const struct block_q6_k *b = (const struct block_q6_k *)p;
    const bytes upper = _mm256_set1_epi8(0x30);
    bytes v[4], w[4], t[4];
    (void)q;
    load_nibbles(b->low, b->low + 64, 16, v);
    twice(load16x2(b->high, b->high + 32), load16x2(b->high + 16, b->high + 48), t);
    for (int j = 0; j < 4; j++) {
        t[j] = _mm256_srlv_epi32(t[j], _mm256_setr_epi32(0, 0, 2, 2, 0, 0, 2, 2));
        const bytes high = _mm256_and_si256(_mm256_slli_epi16(t[j], 4), upper);
        w[j] = _mm256_or_si256(low_nibbles(v[j]), high);
    }
    l->sum[0] = dot4(w, x, 0, 63);
    for (int j = 0; j < 4; j++)
        w[j] = _mm256_or_si256(high_nibbles(v[j]), _mm256_and_si256(t[j], upper));
    l->sum[1] = dot4(w, x, 1, 63);
    const __m128i s = _mm_loadu_si128((const __m128i *)b->scales);
    const __m256 d = _mm256_set1_ps(load_f16(b->d));
    const __m256i s0 = _mm256_cvtepi8_epi32(_mm_shuffle_epi32(s, 0x08));
    const __m256i s1 = _mm256_cvtepi8_epi32(_mm_shuffle_epi32(s, 0x0d));
    l->scale[0] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(s0));
    l->scale[1] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(s1));
}

// Q2_K, Q3_K: 16 bytes are a group and the second, the fourth, the sixth after it. Lanes are the
// four sixteens, once more in the second half of a register.
static const struct order of_fields = {{0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15}};
#define FIELDS0 LANES(0, 1, 8, 9, 4, 5, 12, 13)
#define FIELDS1 LANES(2, 3, 10, 11, 6, 7, 14, 15)

INLINE float fields_total(const __m256 acc[2])
{
    const __m256 a = acc[0], b = acc[1]; // eights: of 0 and 1, 2 and 3, and fours after them
    const __m256 eights =
        _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    return total4(halves(eights));
}

INLINE bytes load16_twice(const uint8_t *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}

// The first fields of each half, each lowest in its byte: the next ones are above them.
INLINE void load_fields(const uint8_t q[64], bytes v[4])
{
    for (int c = 0; c < 4; c++)
        v[c] = load16_twice(q + 16 * c);
    transpose(v);
    for (int j = 0; j < 4; j++)
        v[j] = _mm256_srlv_epi32(v[j], _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
}

// The sums of codes of two bits.
INLINE void dot_fields(const uint8_t q[64], const struct split *x, struct lanes *l)
{
    const bytes three = _mm256_set1_epi8(3);
    bytes v[4], w[4];
    load_fields(q, v);
    for (int j = 0; j < 4; j++)
        w[j] = _mm256_and_si256(v[j], three);
    l->sum[0] = dot4(w, x, 0, 3);
    for (int j = 0; j < 4; j++)
        w[j] = _mm256_and_si256(_mm256_srli_epi16(v[j], 2), three);
    l->sum[1] = dot4(w, x, 1, 3);
}

INLINE void dot_tq2_0(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const struct block_tq2_0 *b = (const struct block_tq2_0 *)p;
    (void)q;
    dot_fields(b->q, x, l);
    l->scale[0] = l->scale[1] = _mm256_set1_ps(load_f16(b->d));
}

INLINE void dot_q2_k(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const struct block_q2_k *b = (const struct block_q2_k *)p;
    (void)q;
    dot_fields(b->q, x, l);
    const __m128i s = _mm_loadu_si128((const __m128i *)b->scales), low = _mm_set1_epi8(15);
    const __m128i scales = _mm_and_si128(s, low), mins = _mm_and_si128(_mm_srli_epi16(s, 4), low);
    const __m256 d = _mm256_set1_ps(load_f16(b->d)), dmin = _mm256_set1_ps(-load_f16(b->dmin));
    l->scale[0] = _mm256_mul_ps(d, picked(scales, FIELDS0));
    l->scale[1] = _mm256_mul_ps(d, picked(scales, FIELDS1));
    l->min[0] = _mm256_mul_ps(dmin, picked(mins, FIELDS0));
    l->min[1] = _mm256_mul_ps(dmin, picked(mins, FIELDS1));
}

INLINE void dot_q3_k(const uint8_t *p, const uint8_t *q, const struct split *x, struct lanes *l)
{
    const struct block_q3_k *b = (const struct block_q3_k *)p;
    const bytes three = _mm256_set1_epi8(3), four = _mm256_set1_epi8(4);
    bytes v[4], w[4], t[4];
    (void)q;
    load_fields(b->q, v);
    twice(load16_twice(b->high), load16_twice(b->high + 16), t);
    for (int j = 0; j < 4; j++) {
        t[j] = _mm256_srlv_epi32(t[j], _mm256_setr_epi32(0, 0, 4, 4, 2, 2, 6, 6));
        const bytes third = _mm256_and_si256(_mm256_slli_epi16(t[j], 2), four);
        w[j] = _mm256_or_si256(_mm256_and_si256(v[j], three), third);
    }
    l->sum[0] = dot4(w, x, 0, 7);
    for (int j = 0; j < 4; j++) {
        const bytes third = _mm256_and_si256(_mm256_slli_epi16(t[j], 1), four);
        w[j] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(v[j], 2), three), third);
    }
    l->sum[1] = dot4(w, x, 1, 7);
    const struct sixteen_bytes s = q3_k_scales(b->scales);
    const __m128i scales = _mm_set_epi64x((long long)s.second, (long long)s.first);
    const __m256 d = _mm256_set1_ps(load_f16(b->d)), off = _mm256_set1_ps(32.0f);
    l->scale[0] = _mm256_mul_ps(d, _mm256_sub_ps(picked(scales, FIELDS0), off));
    l->scale[1] = _mm256_mul_ps(d, _mm256_sub_ps(picked(scales, FIELDS1), off));
}

// ---- products

// Registers first, first + 2, ... of x: four columns at a time of the groups' bytes.
INLINE void split_groups(const uint8_t *from, const uint8_t groups[8], struct split_register *to,
                         bool high)
{
    bytes v[4];
    for (int k = 0; k < 4; k++)
        v[k] = load16x2(from + 16 * groups[k], from + 16 * groups[k + 4]);
    transpose(v);
    for (int j = 0; j < 4; j++)
        _mm256_store_si256((__m256i *)(high ? to[2 * j].high : to[2 * j].low), v[j]);
}

INLINE void split_block(const struct kind *kind, const struct order *order, const struct cpu_act *x,
                        size_t block, struct split *s)
{
    const __m256i upper = _mm256_set1_epi16((short)0xff00), lower = _mm256_set1_epi16(255);
    const __m256i one = _mm256_set1_epi16(1);
    const int16_t *q = x->q + block * CPU_PAD;
    _Alignas(32) uint8_t high[CPU_PAD], low[CPU_PAD]; // as columns come
    _Alignas(32) int32_t quarter[CPU_PAD / 4];        // sums of a quarter of a group
    for (int i = 0; i < CPU_PAD; i += 32) {
        const int16_t *at = q + i / 64 * 64 + i % 64 / 2;
        const __m256i even = load32(at), odd = load32(at + 32);
        const __m256i h = _mm256_or_si256(_mm256_srli_epi16(even, 8), _mm256_and_si256(odd, upper));
        const __m256i l = _mm256_or_si256(_mm256_and_si256(even, lower), _mm256_slli_epi16(odd, 8));
        _mm256_store_si256((__m256i *)(high + i), h);
        _mm256_store_si256((__m256i *)(low + i), l);
        _mm256_store_si256(
            (__m256i *)(quarter + i / 4),
            _mm256_add_epi32(_mm256_madd_epi16(even, one), _mm256_madd_epi16(odd, one)));
    }
    for (int i = 0; i < 2; i++) {
        split_groups(high, order->groups + 8 * i, s->x + i, true);
        split_groups(low, order->groups + 8 * i, s->x + i, false);
    }
    for (int i = 0; i < 16; i++) {
        const int32_t *sum = quarter + 4 * order->groups[i];
        s->less[i] = (sum[0] + sum[1] + sum[2] + sum[3]) * kind->offset;
        s->sum[i] = x->sum[block * (CPU_PAD / 16) + order->groups[i]];
    }
}

// keep 0xff: all lanes; 0x0f, 0xf0: those of one half in the first one, the others being nothing.
INLINE __m256 kept(__m256 v, int keep)
{
    return keep == 0xff   ? v
           : keep == 0x0f ? _mm256_blend_ps(_mm256_setzero_ps(), v, 0x0f)
                          : _mm256_permute2f128_ps(v, v, 0x81);
}

// Lanes of groups that are not there become nothing: other weights have been read, whatever they
// are.
INLINE void clear_behind(const struct kind *kind, const struct order *order, size_t n_groups,
                         struct lanes *l)
{
    const __m256i n = _mm256_set1_epi32((int)n_groups);
    for (int i = 0; i < 2; i++) {
        const __m128i groups = _mm_loadl_epi64((const __m128i *)(order->groups + 8 * i));
        const __m256 there =
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(n, _mm256_cvtepu8_epi32(groups)));
        l->scale[i] = _mm256_and_ps(l->scale[i], there);
        if (kind->has_min)
            l->min[i] = _mm256_and_ps(l->min[i], there);
    }
}

// Adds scaled sums to a row's lanes, as far as they are kept.
INLINE void add_lanes(const struct kind *kind, const struct lanes *l, const struct split *x,
                      float scale, int keep, __m256 acc[2])
{
    for (int i = 0; i < 2; i++) {
        whole sum = l->sum[i];
        if (kind->offset > 0)
            sum = _mm256_sub_epi32(sum, load32(x->less + 8 * i));
        const __m256 y = kept(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), l->scale[i]), keep);
        acc[i] = _mm256_fmadd_ps(y, _mm256_set1_ps(scale), acc[i]);
        if (kind->has_min)
            acc[i] =
                _mm256_fmadd_ps(kept(l->min[i], keep), _mm256_loadu_ps(x->sum + 8 * i), acc[i]);
    }
}

// One token's activations for all rows.
struct token {
    struct split x[DECODE_MOST_BLOCKS];
    const float *scale;
    size_t n_blocks;
};

// The whole blocks of a row; returns their end.
INLINE const uint8_t *add_blocks(const struct kind *kind, const struct token *t, const uint8_t *p,
                                 __m256 acc[2])
{
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    struct lanes l;
    for (size_t b = 0; b < t->n_blocks; b++, p += kind->block_bytes) {
        fetch(p + AHEAD, kind->block_bytes);
        kind->dot(p, p + kind->block_bytes / 2, &t->x[b], &l);
        add_lanes(kind, &l, &t->x[b], t->scale[b], 0xff, sum);
    }
    acc[0] = sum[0];
    acc[1] = sum[1];
    return p;
}

// What is behind the whole blocks of two rows, together if both find room in a block.
INLINE void add_rest(const struct kind *kind, const struct token *t, size_t n_groups,
                     const uint8_t *p, const uint8_t *q, __m256 acc[2][2])
{
    const struct split *x = &t->x[t->n_blocks];
    const float scale = t->scale[t->n_blocks];
    struct lanes l;
    if (n_groups <= 8) {
        kind->dot(p, q, x, &l);
        clear_behind(kind, kind->half, n_groups, &l);
        add_lanes(kind, &l, x, scale, 0x0f, acc[0]);
        add_lanes(kind, &l, x, scale, 0xf0, acc[1]);
        return;
    }
    for (int i = 0; i < 2; i++) {
        const uint8_t *row = i == 0 ? p : q;
        kind->dot(row, row + kind->block_bytes / 2, x, &l);
        clear_behind(kind, kind->order, n_groups, &l);
        add_lanes(kind, &l, x, scale, 0xff, acc[i]);
    }
}

INLINE bool rows_of_kind(const struct cpu_matmul *m, const struct kind *kind, uint32_t row0,
                         uint32_t row1)
{
    const size_t n_cols = m->w->n_cols, n_blocks = n_cols / CPU_PAD;
    const size_t rest = n_cols % CPU_PAD, rest_bytes = rest * kind->block_bytes / CPU_PAD;
    if ((rest > 0 && !kind->half) || n_blocks >= DECODE_MOST_BLOCKS)
        return false;
    struct token t;
    t.scale = m->x->scale;
    t.n_blocks = n_blocks;
    for (size_t i = 0; i < n_blocks; i++)
        split_block(kind, kind->order, m->x, i, &t.x[i]);
    if (rest > 0)
        split_block(kind, rest <= CPU_PAD / 2 ? kind->half : kind->order, m->x, n_blocks,
                    &t.x[n_blocks]);
    const size_t row_bytes = n_blocks * kind->block_bytes + rest_bytes;
    const uint8_t *row = (const uint8_t *)m->w->data + row0 * row_bytes;
    const uint8_t *end = (const uint8_t *)m->w->data + m->w->rows * row_bytes;
    for (uint32_t r = row0; r < row1; r += 2, row += 2 * row_bytes) {
        const bool two = row1 - r >= 2; // if not: twice the same
        __m256 acc[2][2];
        const uint8_t *p = add_blocks(kind, &t, row, acc[0]);
        const uint8_t *q = add_blocks(kind, &t, row + (two ? row_bytes : 0), acc[1]);
        if (rest > 0) {
            uint8_t last[2][DECODE_REST_BYTES];
            fetch(p + AHEAD, rest_bytes);
            fetch(q + AHEAD, rest_bytes);
            if ((size_t)(end - q) < kind->block_bytes) {
                p = memcpy(last[0], p, rest_bytes);
                q = memcpy(last[1], q, rest_bytes);
            }
            add_rest(kind, &t, rest / 16, p, q, acc);
        }
        put(m, r, 0, kind->total(acc[0]));
        if (two)
            put(m, r + 1, 0, kind->total(acc[1]));
    }
    return true;
}

#define BLOCKS_KIND(type, n, offset, has_min)                                                      \
    {                                                                                              \
        &of_blocks, &of_half, dot_##type, blocks_total, offset, n * sizeof(struct block_##type),   \
            has_min                                                                                \
    }
#define BLOCK_KIND(type, order, offset, has_min)                                                   \
    {                                                                                              \
        &of_##order, NULL, dot_##type, order##_total, offset, sizeof(struct block_##type), has_min \
    }
#define ROWS(type, ...)                                                                            \
    static bool rows_##type(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)              \
    {                                                                                              \
        static const struct kind kind = __VA_ARGS__;                                               \
        return rows_of_kind(m, &kind, row0, row1);                                                 \
    }
ROWS(q4_0, BLOCKS_KIND(q4_0, 8, 8, false))
ROWS(q4_1, BLOCKS_KIND(q4_1, 8, 0, true))
ROWS(q5_0, BLOCKS_KIND(q5_0, 8, 16, false))
ROWS(q5_1, BLOCKS_KIND(q5_1, 8, 0, true))
ROWS(mxfp4, BLOCKS_KIND(mxfp4, 8, 12, false))
ROWS(nvfp4, BLOCKS_KIND(nvfp4, 4, 12, false))
ROWS(q2_k, BLOCK_KIND(q2_k, fields, 0, true))
ROWS(q3_k, BLOCK_KIND(q3_k, fields, 4, false))
ROWS(tq2_0, BLOCK_KIND(tq2_0, fields, 1, false))
ROWS(q4_k, BLOCK_KIND(q4_k, pairs, 0, true))
ROWS(q5_k, BLOCK_KIND(q5_k, pairs, 0, true))
ROWS(q6_k, BLOCK_KIND(q6_k, fourths, 32, false))

typedef bool rows_fn(const struct cpu_matmul *, uint32_t, uint32_t);

static rows_fn *const rows_of_type[QUANT_TYPE_MAX] = {
    [QUANT_Q4_0] = rows_q4_0,   [QUANT_Q4_1] = rows_q4_1,   [QUANT_Q5_0] = rows_q5_0,
    [QUANT_Q5_1] = rows_q5_1,   [QUANT_Q2_K] = rows_q2_k,   [QUANT_Q3_K] = rows_q3_k,
    [QUANT_Q4_K] = rows_q4_k,   [QUANT_Q5_K] = rows_q5_k,   [QUANT_Q6_K] = rows_q6_k,
    [QUANT_MXFP4] = rows_mxfp4, [QUANT_NVFP4] = rows_nvfp4, [QUANT_TQ2_0] = rows_tq2_0,
};

bool CPU_NAME(decode_rows)(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    rows_fn *const rows = rows_of_type[m->w->type];
    return rows && rows(m, row0, row1);
}
