// Tiles of the cache in shared memory as wgmma reads them, for attention over a prompt on compute
// capability 9.0 (attention_hopper.cu, attention_wide_hopper.cu).
#ifndef HOKKU_CUDA_ATTENTION_TILES_CUH
#define HOKKU_CUDA_ATTENTION_TILES_CUH

#include "attention_prompt.cuh"
#include "ptx_hopper.cuh"

enum {
    GROUP = 4 * WARP, // threads of a warpgroup
    T = KV_BLOCK,     // positions of a tile
    NP = T / 16,
};

// A tile (rows, DH) in shared memory is DH / 64 panels one behind the other, each with 128 bytes of
// every row, whose 16-byte pieces p are at place p ^ (row % 8): as wgmma reads rows or columns.
static __device__ __forceinline__ uint32_t piece_at(uint32_t row, uint32_t piece, uint32_t rows)
{
    return piece / 8 * rows * 128 + row * 128 + ((piece ^ row) % 8) * 16;
}

// A warpgroup requests the rows of the cache from row0 on; rows from `left` on become zeros, as
// request_rows has them.
template <int DH>
static __device__ __forceinline__ void request_tile(const struct kv_plane &plane, size_t row0,
                                                    int left, uint8_t *to, uint32_t thread)
{
    const uint8_t *const from = plane.data + row0 * plane.row_bytes;
    constexpr int MOST = 32, N = DH / 8 < MOST ? DH / 8 : MOST; // pieces that a warp takes at once
    if (left >= (int)T && plane.row_bytes == 2 * DH) {          // addresses differ by constants
#pragma unroll
        for (int first = 0; first < DH / 8; first += N)
            each_piece<T, N, GROUP>(thread, [&](uint32_t r0, uint32_t i, int r) {
                const uint32_t piece = first + i;
                cp_async16(to + piece_at(r0, piece ^ r % 8, T) + r * 128,
                           from + r0 * (2 * DH) + piece * 16 + r * (2 * DH));
            });
    } else {
#pragma unroll 1
        for (uint32_t i = thread; i < T * (DH / 8); i += GROUP) {
            const uint32_t row = i / (DH / 8), piece = i % (DH / 8);
            const bool valid = (int)row < left && piece * 16 < plane.row_bytes;
            cp_async16_or_zero(to + piece_at(row, piece, T),
                               valid ? from + row * plane.row_bytes + piece * 16 : plane.data,
                               valid);
        }
    }
}

#endif
