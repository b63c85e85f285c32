// The results of warp operations, computed for all lanes at once.
#include "emu_internal.h"

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace
{

constexpr uint64_t POISON = 0xFFFFFFFFFFFFFFFFu; // from a lane that does not take part

int shuffle_source(emu_warp_kind kind, int lane, const emu_warp_args &a)
{
    int width = a.width, first = lane & ~(width - 1), arg = a.lane_arg;
    switch (kind) {
    case EMU_WARP_SHFL:
        return first + (arg & (width - 1));
    case EMU_WARP_SHFL_UP:
        return lane - arg >= first ? lane - arg : lane;
    case EMU_WARP_SHFL_DOWN:
        return lane + arg < first + width ? lane + arg : lane;
    default: { // XOR: may read an earlier segment, but not a later one
        int source = lane ^ arg;
        return source < first + width ? source : lane;
    }
    }
}

void shuffle(emu_warp_kind kind, unsigned mask, emu_warp_args *const args[32])
{
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1))
            continue;
        int w = args[lane]->width;
        if (w < 1 || w > 32 || (w & (w - 1)))
            emu_fail("a shuffle of width %d", w);
        int s = shuffle_source(kind, lane, *args[lane]);
        args[lane]->out = s >= 0 && s < 32 && (mask >> s & 1) ? args[s]->in : POISON;
    }
}

uint64_t combine_two(emu_warp_kind kind, uint64_t a, uint64_t b)
{
    switch (kind) {
    case EMU_WARP_ADD:
        return a + b;
    case EMU_WARP_MIN_U:
        return (uint32_t)a < (uint32_t)b ? a : b;
    case EMU_WARP_MAX_U:
        return (uint32_t)a > (uint32_t)b ? a : b;
    case EMU_WARP_MIN_S:
        return (int32_t)a < (int32_t)b ? a : b;
    case EMU_WARP_MAX_S:
        return (int32_t)a > (int32_t)b ? a : b;
    case EMU_WARP_AND:
        return a & b;
    case EMU_WARP_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

void reduce(emu_warp_kind kind, unsigned mask, emu_warp_args *const args[32])
{
    uint64_t r = 0;
    bool first = true;
    for (unsigned m = mask; m; m &= m - 1) {
        unsigned l = (unsigned)__builtin_ctz(m);
        r = first ? args[l]->in : combine_two(kind, r, args[l]->in);
        first = false;
    }
    for (unsigned m = mask; m; m &= m - 1)
        args[__builtin_ctz(m)]->out = r;
}

void vote(bool match, unsigned mask, emu_warp_args *const args[32])
{
    for (unsigned m = mask; m; m &= m - 1) {
        emu_warp_args *a = args[__builtin_ctz(m)];
        a->out = 0;
        for (unsigned k = mask; k; k &= k - 1) {
            unsigned l = (unsigned)__builtin_ctz(k);
            bool set = match ? args[l]->in == a->in : args[l]->in != 0;
            a->out |= (uint64_t)set << l;
        }
    }
}

template <typename F> float element(uint32_t reg, int i)
{
    return F::widen((uint16_t)(reg >> (16 * i)));
}

// m16n8k16: the fragment layouts of the PTX ISA, section "Matrix Fragments for mma.m16n8k16".
template <typename F> void mma_f16(emu_warp_args *const args[32])
{
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        const uint32_t *ra = (const uint32_t *)args[lane]->a, *rb = (const uint32_t *)args[lane]->b;
        for (int i = 0; i < 2; i++) {
            for (int r = 0; r < 4; r++)
                a[g + 8 * (r & 1)][2 * t + i + 8 * (r >> 1)] = element<F>(ra[r], i);
            for (int r = 0; r < 2; r++)
                b[2 * t + i + 8 * r][g] = element<F>(rb[r], i);
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        float *d = (float *)args[lane]->d;
        for (int r = 0; r < 4; r++) {
            int row = lane / 4 + 8 * (r >> 1), col = lane % 4 * 2 + (r & 1);
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += a[row][k] * b[k][col];
            d[r] += sum;
        }
    }
}

// m16n8k32, int8: section "Matrix Fragments for mma.m16n8k32".
void mma_s8(emu_warp_args *const args[32])
{
    int a[16][32], b[32][8];
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        const uint32_t *ra = (const uint32_t *)args[lane]->a, *rb = (const uint32_t *)args[lane]->b;
        for (int i = 0; i < 4; i++) {
            for (int r = 0; r < 4; r++)
                a[g + 8 * (r & 1)][4 * t + i + 16 * (r >> 1)] = (int8_t)(ra[r] >> (8 * i));
            for (int r = 0; r < 2; r++)
                b[4 * t + i + 16 * r][g] = (int8_t)(rb[r] >> (8 * i));
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        int32_t *d = (int32_t *)args[lane]->d;
        for (int r = 0; r < 4; r++) {
            int row = lane / 4 + 8 * (r >> 1), col = lane % 4 * 2 + (r & 1), sum = 0;
            for (int k = 0; k < 32; k++)
                sum += a[row][k] * b[k][col];
            d[r] = (int32_t)((uint32_t)d[r] + (uint32_t)sum);
        }
    }
}

void ldmatrix(emu_warp_args *const args[32])
{
    int n = args[0]->n;
    bool trans = args[0]->flag;
    uint16_t m[4][8][8];
    for (int i = 0; i < n * 8; i++) {
        if ((uintptr_t)args[i]->a % 16)
            emu_fail("ldmatrix: the row address %p of lane %d is not 16-byte aligned", args[i]->a,
                     i);
        memcpy(m[i / 8][i % 8], args[i]->a, 16);
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < n; i++) {
            int r = lane / 4, c = lane % 4 * 2;
            uint32_t lo = trans ? m[i][c][r] : m[i][r][c];
            uint32_t hi = trans ? m[i][c + 1][r] : m[i][r][c + 1];
            ((uint32_t *)args[lane]->d)[i] = lo | hi << 16;
        }
}

// Element k of row r of a tile of rows of 128 bytes, as the hardware finds it: address bits 4 to 6
// are exchanged by bits 7 to 9.
float tile_element(const void *tile, int r, int k)
{
    uintptr_t at = (uintptr_t)tile + (size_t)r * 128 + (size_t)k * 2;
    at ^= (at >> 7 & 7) << 4;
    uint16_t bits;
    memcpy(&bits, (const void *)at, 2);
    return emu_binary16::widen(bits);
}

// Rows of m64nNk16 that one warp holds: section "Register Fragments for wgmma.mma_async.m64k16".
void wgmma_f16(emu_warp_args *const args[32])
{
    float a[16][16], b[256][16];
    const int n = args[0]->n;
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        const uint32_t *ra = (const uint32_t *)args[lane]->a;
        if (args[lane]->b != args[0]->b || args[lane]->a_tile != args[0]->a_tile)
            emu_fail("wgmma: lane %d has another tile", lane);
        for (int i = 0; i < 2; i++)
            for (int r = 0; r < 4; r++) {
                const int row = g + 8 * (r & 1), k = 2 * t + i + 8 * (r >> 1);
                a[row][k] =
                    ra ? element<emu_binary16>(ra[r], i) : tile_element(args[lane]->a_tile, row, k);
            }
    }
    const char *tile = (const char *)args[0]->b;
    const size_t panel = args[0]->panel;
    for (int col = 0; col < n; col++)
        for (int k = 0; k < 16; k++)
            b[col][k] = panel ? tile_element(tile + (size_t)(col / 64) * panel, k, col % 64)
                              : tile_element(tile, col, k);
    for (int lane = 0; lane < 32; lane++) {
        float *d = (float *)args[lane]->d;
        for (int j = 0; j < n / 8; j++)
            for (int r = 0; r < 4; r++) {
                int row = lane / 4 + 8 * (r >> 1), col = 8 * j + lane % 4 * 2 + (r & 1);
                float sum = 0;
                for (int k = 0; k < 16; k++)
                    sum += a[row][k] * b[col][k];
                d[4 * j + r] += sum;
            }
    }
}

void butterfly(emu_warp_args *const args[32])
{
    const emu_combine *c[32];
    void *v[32];
    for (int lane = 0; lane < 32; lane++) {
        c[lane] = (const emu_combine *)args[lane]->a;
        v[lane] = args[lane]->d;
        if (c[lane]->from != c[0]->from || c[lane]->to != c[0]->to || c[0]->from < 0 ||
            c[0]->from > 16 || c[0]->to < 1 || c[0]->to > 16)
            emu_fail("a butterfly of %d in lane %d, of %d in lane 0", c[lane]->from, lane,
                     c[0]->from);
    }
    c[0]->call(c, v);
}

} // namespace

void emu_warp_combine(emu_warp_kind kind, unsigned mask, emu_warp_args *const args[32])
{
    if (kind >= EMU_WARP_MMA_F16 && mask != 0xFFFFFFFFu)
        emu_fail("an operation of the whole warp needs all 32 lanes, mask %08x", mask);
    switch (kind) {
    case EMU_WARP_SYNC:
        return;
    case EMU_WARP_SHFL:
    case EMU_WARP_SHFL_UP:
    case EMU_WARP_SHFL_DOWN:
    case EMU_WARP_SHFL_XOR:
        return shuffle(kind, mask, args);
    case EMU_WARP_BALLOT:
    case EMU_WARP_MATCH:
        return vote(kind == EMU_WARP_MATCH, mask, args);
    case EMU_WARP_MMA_F16:
        return mma_f16<emu_binary16>(args);
    case EMU_WARP_MMA_BF16:
        return mma_f16<emu_bfloat16>(args);
    case EMU_WARP_MMA_S8:
        return mma_s8(args);
    case EMU_WARP_LDMATRIX:
        return ldmatrix(args);
    case EMU_WARP_WGMMA_F16:
        return wgmma_f16(args);
    case EMU_WARP_BUTTERFLY:
        return butterfly(args);
    default:
        return reduce(kind, mask, args);
    }
}
